//! Conversions between types whose variants or fields have the same names on both sides.

/// Implements [`IntoWire`](super::IntoWire) name by name.
macro_rules! into_wire {
    (enum $from:ident => $to:ident { $($name:ident),+ $(,)? }) => {
        impl IntoWire for $from {
            type Wire = $to;

            fn into_wire(self) -> $to {
                match self { $($from::$name => $to::$name),+ }
            }
        }
    };
    (struct $from:ident => $to:ident { $($name:ident),+ $(,)? }) => {
        impl IntoWire for $from {
            type Wire = $to;

            fn into_wire(self) -> $to {
                $to { $($name: self.$name),+ }
            }
        }
    };
}

/// Implements [`IntoEngine`](super::IntoEngine) name by name.
macro_rules! into_engine {
    (enum $from:ident => $to:ident { $($name:ident),+ $(,)? }) => {
        impl IntoEngine for $from {
            type Engine = $to;

            fn into_engine(self) -> $to {
                match self { $($from::$name => $to::$name),+ }
            }
        }
    };
    (struct $from:ident => $to:ident { $($name:ident),+ $(,)? }) => {
        impl IntoEngine for $from {
            type Engine = $to;

            fn into_engine(self) -> $to {
                $to { $($name: self.$name),+ }
            }
        }
    };
}
