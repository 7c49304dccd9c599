//! The definitions of the desktop's tools.

use super::ToolSpec;

const X: (&str, &str, &str) = ("x", "integer", "Pixels from the left edge of the screen.");
const Y: (&str, &str, &str) = ("y", "integer", "Pixels from the upper edge of the screen.");

/// Tools for the screen, the mouse and the keyboard. The computer tool of a model's API replaces them.
pub(crate) const POINTER_SPECS: &[ToolSpec] = &[
    ToolSpec {
        name: "screenshot",
        description: "Look at the screen of the sandbox's desktop. Returns an image with the mouse pointer. Take one \
            after an action to see what it did; programs may need a second or more.",
        arguments: &[],
        required: 0,
    },
    ToolSpec {
        name: "click",
        description: "Click a mouse button at a position of the screen.",
        arguments: &[
            X,
            Y,
            ("button", "string", "The default is left."),
            ("times", "integer", "2 is a double click, 3 a triple click. The default is 1."),
        ],
        required: 2,
    },
    ToolSpec {
        name: "move",
        description: "Move the mouse pointer without clicking, for example to open a menu or a hint.",
        arguments: &[X, Y],
        required: 2,
    },
    ToolSpec {
        name: "drag",
        description: "Move the mouse pointer from one position to another while its left button is pressed.",
        arguments: &[
            ("from_x", "integer", "Where the drag begins."),
            ("from_y", "integer", "Where the drag begins."),
            ("to_x", "integer", "Where the drag ends."),
            ("to_y", "integer", "Where the drag ends."),
        ],
        required: 4,
    },
    ToolSpec {
        name: "scroll",
        description: "Turn the mouse wheel at a position of the screen.",
        arguments: &[
            X,
            Y,
            ("direction", "string", "The default is down."),
            ("steps", "integer", "From 1 to 100. The default is 5."),
        ],
        required: 2,
    },
    ToolSpec {
        name: "type",
        description: "Type a text into the window that has the focus. A line break presses Return.",
        arguments: &[("text", "string", "The text to type.")],
        required: 1,
    },
    ToolSpec {
        name: "press",
        description: "Press keys together and release them, such as `ctrl+c`, `alt+Tab`, `Return` or `F5`.",
        arguments: &[("keys", "string", "The keys, joined by a plus sign.")],
        required: 1,
    },
];

/// Tools for windows, programs and the clipboard.
pub(crate) const SESSION_SPECS: &[ToolSpec] = &[
    ToolSpec {
        name: "windows",
        description: "List the open windows of the desktop: position, size and title.",
        arguments: &[],
        required: 0,
    },
    ToolSpec {
        name: "launch",
        description: "Start a program on the desktop, such as `chromium https://example.com`, `mousepad`, `thunar` or \
            `xfce4-terminal`. Returns at once; its window opens a few seconds later.",
        arguments: &[("command", "string", "The program and its arguments, as a line for sh.")],
        required: 1,
    },
    ToolSpec {
        name: "clipboard_get",
        description: "Read the text in the desktop's clipboard.",
        arguments: &[],
        required: 0,
    },
    ToolSpec {
        name: "clipboard_set",
        description: "Put a text into the desktop's clipboard.",
        arguments: &[("text", "string", "The text.")],
        required: 1,
    },
];
