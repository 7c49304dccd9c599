//! The numbers of the descriptors that QEMU inherits. A cached process relies on them as QEMU's command line does.

use std::ops::Range;

use crate::jail::FIRST_INHERITED;

pub(crate) const QMP_FD: i32 = FIRST_INHERITED;
pub(crate) const CONTROL_FD: i32 = FIRST_INHERITED + 1;
pub(crate) const CONSOLE_FD: i32 = FIRST_INHERITED + 2;
pub(crate) const CABLE_FD: i32 = FIRST_INHERITED + 3;
pub(crate) const STATE_FD: i32 = FIRST_INHERITED + 4;
pub(crate) const COPY_FD: i32 = FIRST_INHERITED + 5;
pub(crate) const FIRST_PLUG_FD: i32 = FIRST_INHERITED + 6;

/// The descriptors of every restored machine, apart from volumes.
pub(crate) const OF_EVERY_MACHINE: Range<i32> = FIRST_INHERITED..FIRST_PLUG_FD;
