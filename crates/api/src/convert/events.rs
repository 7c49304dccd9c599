//! Events of sandboxes.

use sandling_engine::Event;
use sandling_wire::EventView;

use super::IntoWire;

impl IntoWire for Event {
    type Wire = EventView;

    fn into_wire(self) -> EventView {
        EventView {
            number: self.number,
            time: self.time.to_string(),
            sandbox_id: self.sandbox,
            kind: format!("sandbox.{}", self.kind),
            payload: self.detail,
        }
    }
}
