//! The ceilings of the format (contract section 1). Exactly the limit is accepted, one more is refused,
//! on load and before any byte of an append is written.

/// Bytes of one line, without its line feed and without one carriage return before it. The header line counts too.
pub const MAX_SESSION_LINE_BYTES: usize = 65_536;

/// Bytes of the whole file.
pub const MAX_SESSION_FILE_BYTES: usize = 4_194_304;

/// Entries of one session. The header is not an entry.
pub const MAX_SESSION_RECORDS: usize = 4_096;

/// The version written in the header and in each entry.
pub const SESSION_FORMAT_VERSION: u32 = 1;
