//! The desktop of a template: a screen with a session that runs when the template is baked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The size of the screen that a template's sandboxes begin with, in pixels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desktop {
    pub width: u32,
    pub height: u32,
}

/// The programs and settings that a tree with a desktop gets, by the names of their files.
pub(crate) const FILES: [(&str, &str); 10] = [
    ("start-desktop", include_str!("desktop/start-desktop")),
    ("resize-desktop", include_str!("desktop/resize-desktop")),
    ("view-desktop", include_str!("desktop/view-desktop")),
    ("Xvfb", include_str!("desktop/Xvfb")),
    ("startxfce4", include_str!("desktop/startxfce4")),
    ("xdotool", include_str!("desktop/xdotool")),
    ("chromium-devtools", include_str!("desktop/chromium-devtools")),
    ("keyboards.xml", include_str!("desktop/keyboards.xml")),
    ("xfwm4.xml", include_str!("desktop/xfwm4.xml")),
    ("chromium-flags", include_str!("desktop/chromium-flags")),
];

impl Desktop {
    /// The user whose session it is.
    pub const USER: &str = "user";

    /// The command that starts the desktop as [`Desktop::USER`]. It ends when the screen is painted.
    pub fn start(&self) -> Vec<String> {
        vec!["start-desktop".to_owned(), self.width.to_string(), self.height.to_string()]
    }

    /// By these variables, programs find the screen and the session's bus. The bus has a fixed name because a sandbox has
    /// another machine id than its template, and D-Bus would look for a bus of that id.
    pub fn env(&self) -> BTreeMap<String, String> {
        [("DISPLAY", ":0"), ("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/tmp/desktop-bus")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }
}
