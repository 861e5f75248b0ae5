//! The text of the contract.

use super::{Answer, Level, Requirement};

/// `F` file format, `R` records, `L` tool linkage, `S` store, `C` commit, `K` create, `V` load, `T` tree, `Q` queue,
/// `X` recovery, `B` boundary to the file system.
pub(super) const ALL: &[Requirement] = &[
    must(
        "F1",
        "line ends",
        "A line is ended by one line feed. A single carriage return just before it, or at the very end of a \
        last line that has no line feed, is not part of the line. A last line without a line feed counts \
        when what it holds is a valid record.",
    ),
    must(
        "F2",
        "encoding",
        "Each line is UTF-8 from its first byte to its last, the unterminated one at the end included. \
        Anything else is SESSION_INVALID_UTF8; bytes are never replaced by a substitute character.",
    ),
    must(
        "F3",
        "one value a line",
        "Each line is one JSON value by RFC 8259 and nothing besides. Whatever is not, an empty line among \
        it, is SESSION_INVALID_JSON.",
    ),
    must(
        "F4",
        "torn tail",
        "One thing is forgiven: a last line that has no line feed and is the beginning of a JSON object, \
        that is, some further bytes would make it one whole object. It is left out of the session. A last \
        line that is a whole value of any kind is judged like every other line, and one that is neither is \
        SESSION_INVALID_JSON: a wrong byte anywhere, text after an object, a cut-off array or string, white \
        space alone. The verdict follows the grammar alone (not names, surrogates, depth or magnitude), \
        takes linear time and does not recurse.",
    ),
    must(
        "F5",
        "a torn tail stays until a commit",
        "A torn tail is left out of the view only. Its bytes remain in the file until the next append or \
        flush that succeeds, whose generation is canonical and has none of them.",
    ),
    must(
        "F6",
        "no record at all",
        "A file in which no record is complete, because it is empty or holds a torn tail and nothing else, \
        is SESSION_INVALID_HEADER.",
    ),
    must(
        "F7",
        "ceilings, and which refusal comes first",
        "A line has at most 65 536 bytes (line feed, and one carriage return before it, not counted; the \
        header's line is no exception), a file 4 194 304 bytes, a session 4 096 entries. Exactly so much is \
        accepted, one more is SESSION_LINE_TOO_LARGE, SESSION_FILE_TOO_LARGE or SESSION_RECORD_LIMIT, when \
        loading and before an append has written anything. Checks have one order, so that every input has \
        one code: the file's size; for each line its length, encoding and syntax; the header's shape, \
        version, id and time; then for each entry the number of entries, its shape, version, id, kind of \
        parent, time, message, whether its id is new, whether its parent is there, and tool linkage. \
        Repeated names and half surrogates count when the shape of the innermost object around them is \
        checked.",
    ),
    must(
        "F8",
        "canonical form",
        "What a store writes is the header and the entries in stored order, each a compact JSON object with \
        its fields in the order of R1 to R3, ended by a line feed. Strings escape the quote, the backslash \
        and bytes below 0x20, with the two-character escape where JSON has one and else as lower-case \
        hexadecimal, and nothing more. Tool arguments lose white space between tokens; the order of their \
        members and the spelling of their numbers are open. A canonical file that is loaded and flushed \
        keeps every byte. A file that fits only because its last line feed is missing loads, and append and \
        flush refuse it with SESSION_FILE_TOO_LARGE.",
    ),
    must(
        "F9",
        "open points of the syntax",
        "Where JSON texts differ in what readers make of them, a store chooses, and each point has an id of \
        its own. Whatever it chooses, the answer is a session or a code of this contract, never a crash or \
        an untyped error, and what was accepted once can be written, loaded and appended to.",
    ),
    choice(
        "F9.bom",
        "byte order mark",
        "U+FEFF before the value of a line.",
        "refused",
        &[
            answer("refused", "the line is not JSON: SESSION_INVALID_JSON"),
            answer("dropped", "it is passed over, and the next commit does not write it"),
        ],
    ),
    choice(
        "F9.duplicate-names",
        "repeated names",
        "An object with two members of one name, tool arguments included.",
        "refused",
        &[
            answer(
                "refused",
                "the code of the place: SESSION_INVALID_HEADER, SESSION_INVALID_RECORD or \
                SESSION_INVALID_MESSAGE",
            ),
            answer("last-wins", "the last member counts and the others are gone with the next commit"),
            answer("first-wins", "the first member counts and the others are gone with the next commit"),
            answer("kept", "within arguments all members are kept"),
        ],
    ),
    choice(
        "F9.surrogates",
        "half surrogates",
        "An escape of a surrogate whose other half is missing.",
        "refused",
        &[
            answer(
                "refused",
                "SESSION_INVALID_MESSAGE within a message, else SESSION_INVALID_RECORD or \
                SESSION_INVALID_HEADER",
            ),
            answer("kept", "the string is accepted and the half is written as an escape again"),
        ],
    ),
    choice(
        "F9.numbers",
        "numbers beyond a double",
        "A number in tool arguments that an IEEE 754 double does not hold exactly.",
        "kept",
        &[
            answer("kept", "every digit is there after a commit and a load"),
            answer("rounded", "the nearest double is written instead"),
            answer("refused", "SESSION_INVALID_MESSAGE"),
        ],
    ),
    choice(
        "F9.version",
        "spelling of the version",
        "A version that is one but is not written `1`, such as `1.0` or `1e0`.",
        "accepted",
        &[
            answer("accepted", "a number counts by its decimal value"),
            answer("refused", "SESSION_UNSUPPORTED_VERSION"),
        ],
    ),
    choice(
        "F9.depth",
        "deep nesting",
        "Tool arguments that are nested far deeper than any caller means.",
        "unbounded",
        &[
            answer(
                "unbounded",
                "whatever fits into a line is accepted, in memory and stack that the line's length bounds",
            ),
            answer(
                "bounded",
                "from some depth on a code of this contract refuses, on load and on append alike",
            ),
        ],
    ),
    must(
        "R1",
        "header",
        "The first line is an object of exactly `type` (\"session\"), `version` (1), `id` and `createdAt`. \
        Another shape is SESSION_INVALID_HEADER; a version that is anything but 1, of whatever JSON type, \
        is SESSION_UNSUPPORTED_VERSION.",
    ),
    must(
        "R2",
        "entry",
        "Every further line is an object of exactly `type` (\"entry\"), `version` (1), `id`, `parentId` \
        (null or a string), `timestamp` and `message`. Another shape is SESSION_INVALID_RECORD, another \
        version as in R1.",
    ),
    must(
        "R3",
        "message",
        "A message has exactly the fields of its role. `user`: `id`, `role`, `content` (a string). \
        `assistant`: `id`, `role`, `content` (an array of texts {`type` \"text\", `text`} and calls {`type` \
        \"toolCall\", `id`, `name`, `arguments`, an object}). `toolResult`: `id`, `role`, `toolCallId`, \
        `toolName`, `content` (a string), `isError` (a boolean). No blocks and empty texts are fine; all \
        else is SESSION_INVALID_MESSAGE.",
    ),
    must(
        "R4",
        "ids, names and times are filled",
        "Ids, tool names and times are strings with something in them: not empty, and not U+0009 to U+000D \
        and U+0020 alone. The refusal has the code of the place, and an empty parent id is \
        SESSION_INVALID_RECORD. The text of a time is otherwise the writer's own affair.",
    ),
    choice(
        "R4.blank",
        "other white space",
        "An id, name or time of nothing but white space beyond that of R4.",
        "unicode",
        &[
            answer("unicode", "White_Space of Unicode and U+FEFF count as nothing"),
            answer(
                "ecmascript",
                "what `String.prototype.trim` removes counts as nothing: U+FEFF does, U+0085 does not",
            ),
            answer("ascii", "only what R4 names counts as nothing"),
        ],
    ),
    must(
        "R5",
        "ids and parents",
        "No two entries have one id: SESSION_DUPLICATE_ENTRY_ID. A parent is null or an entry further up in \
        the file, else SESSION_PARENT_NOT_FOUND; so there are no cycles. There may be several roots.",
    ),
    must(
        "R6",
        "what need not be unique",
        "Two messages may have one id. A second header is an entry of the wrong shape.",
    ),
    must(
        "R7",
        "other formats",
        "A session of another format is refused, and one of this format is none of theirs: a Pi session \
        (version 3, `timestamp` and `cwd` in its header) is SESSION_INVALID_HEADER.",
    ),
    must(
        "L1",
        "a result has its call",
        "Above a tool result, on its own branch, stands the call whose id it names, and the tool's name is \
        the call's.",
    ),
    must(
        "L2",
        "once a branch",
        "A call id occurs once on a branch, within one message too, and a call has at most one result on a \
        branch.",
    ),
    must(
        "L3",
        "branches are apart",
        "What stands on a sibling branch neither helps nor hinders. Two sibling branches may use one call \
        id, and a call may have one result on each of several branches below it.",
    ),
    must("L4", "calls may wait", "A call needs no result, and other messages may stand between the two."),
    must(
        "L5",
        "refusal of a broken linkage",
        "What breaks L1 or L2 is SESSION_INVALID_TOOL_LINKAGE, on load and, before anything is written, on \
        append. A whole file is checked in nearly linear time.",
    ),
    must(
        "S1",
        "create",
        "Looks at the directory, at the recovery marker (SESSION_ROLLBACK_FAILED where there is one) and at \
        the path (SESSION_ALREADY_EXISTS where anything has it), in this order. The new file is created \
        exclusively with mode 0600, holds the header's line, is made durable, is compared with what the \
        path names, and its name is made durable. A failure removes nothing but what this call made. A name \
        that leaves no room for the longest name beside it is refused first. The time is one value of the \
        clock, and the session's id never comes from the factory of entry ids.",
    ),
    choice(
        "S1.cut",
        "a create that is cut off",
        "What a kill or a power cut within a create leaves at the path.",
        "whole-or-nothing",
        &[
            answer("whole-or-nothing", "the path is absent or holds the whole header"),
            answer(
                "part",
                "an empty file or a part of the header may be there, which neither create nor load accepts",
            ),
        ],
    ),
    must(
        "S2",
        "load",
        "Looks at the directory, at the marker (SESSION_ROLLBACK_FAILED) and at the path. What is no regular \
        file, was replaced between look and open, or changes while it is read is SESSION_FILE_CHANGED; a \
        file over the ceiling is SESSION_FILE_TOO_LARGE and is not read beyond one byte more. A load \
        follows no symbolic link at the path, hangs on no FIFO or device and changes nothing. After reading \
        it looks again: still no marker, still the same file; otherwise it begins anew, a bounded number of \
        times, so that nobody is shown a generation that is taken back later.",
    ),
    must(
        "S3",
        "the directory",
        "The parent is a directory and no symbolic link, and is the same one at every later call: else \
        SESSION_ROOT_CHANGED. A name in it that was known and cannot be reached any more (ENOENT, ENOTDIR, \
        ELOOP) counts as changed.",
    ),
    must(
        "S4",
        "identity of the file",
        "A file is known by device, inode and, where both looks show one, time of birth; its size is \
        compared too. A file that is another one, or gone, is SESSION_FILE_CHANGED. Any other error number, \
        and an absent file at a first look, is SESSION_IO with the number, the path and the stage.",
    ),
    choice(
        "S4.rewrite",
        "rewritten in place",
        "Somebody writes over the session file without changing its size.",
        "seen",
        &[
            answer("seen", "the next operation is refused with SESSION_FILE_CHANGED"),
            answer("unseen", "the next commit replaces what was written"),
        ],
    ),
    must(
        "S5",
        "append",
        "The input belongs to the store before the call is queued. In its turn, and with the path locked, \
        the store asks in this order: is the message valid, is the store sound, are directory and file the \
        known ones, is there room for an entry, is the parent there, is the drawn id filled and new, is the \
        drawn time filled, does the linkage hold, do line and file fit. Then it commits, and only then does \
        memory change. After a failure memory shows the old entries, and so does the disk, unless the \
        answer is SESSION_ROLLBACK_FAILED; the next call in the queue goes on. A drawn id is used up. A \
        blank parent is SESSION_PARENT_NOT_FOUND.",
    ),
    must("S6", "flush", "Commits the entries that are there, as a canonical generation."),
    must(
        "S7",
        "snapshots",
        "The header and a list of entries, once given, never change and do not show later appends. No call \
        edits or removes an entry.",
    ),
    must(
        "S8",
        "several stores on one path",
        "Stores on one path, in one process or several, commit one after the other, and one whose generation \
        is no longer the present one gets SESSION_FILE_CHANGED and writes nothing. Nothing that was \
        acknowledged is lost. A store that keeps no lock between processes may answer \
        SESSION_ROLLBACK_FAILED where it meets another's marker. No lock outlasts its call.",
    ),
    choice(
        "S8.wait",
        "meeting another's commit",
        "A load while another process's commit is under way.",
        "waits",
        &[
            answer("waits", "for a bounded time, and is refused as in flight after that"),
            answer("refused", "at once"),
        ],
    ),
    must(
        "S9",
        "factories",
        "Ids and times come from factories that the caller may supply. One that panics, gives a blank text, \
        or calls back into the store from its own thread makes that call an error (SESSION_FACTORY_FAILED, \
        or SESSION_INVALID_RECORD for the blank text) and never a deadlock, a store that cannot be used, or \
        half an entry. Reads do not queue. Waiting in a factory for another thread's append is misuse.",
    ),
    must(
        "C1",
        "verify",
        "The directory and the file are the known ones, and no recovery marker is there: with one the answer \
        is SESSION_ROLLBACK_FAILED, and the store is not poisoned by it. A failure has written nothing.",
    ),
    must(
        "C2",
        "create the temporary",
        "Exclusively, and it is a regular file. A failure leaves the old generation and no temporary, but \
        for one whose identity could not be learnt; trying again works.",
    ),
    must(
        "C3",
        "write the temporary",
        "Every byte. A short write goes on from where it ended, a write that takes nothing is an error. A \
        failure removes the temporary and leaves the old generation; trying again works.",
    ),
    must(
        "C4",
        "make the temporary durable",
        "Its fsync and its close both succeed, and neither is repeated. What holds the temporary's lock \
        outlives the close. A failure is as in C3.",
    ),
    must(
        "C5",
        "verify the temporary",
        "Directory and file are still the known ones, and the temporary's name still stands for what was \
        written, in identity and size. A failure is as in C3.",
    ),
    must(
        "C6",
        "link the marker",
        "The present generation gets the marker as a second name. Where a marker is there already, the \
        answer is SESSION_ROLLBACK_FAILED, the store is poisoned and that marker is left alone. After any \
        other error the store looks: a marker that the link made is removed again.",
    ),
    must(
        "C7",
        "verify the marker",
        "The marker is the generation that is about to be replaced, and directory and file are still the \
        known ones. A failure is as in C6.",
    ),
    must(
        "C8",
        "rename",
        "The temporary takes the path. After an error the store looks at the path: with the old generation \
        there it cleans up; with the temporary there, or nothing, it rolls back (C20); with a stranger's \
        file there, or where it cannot see, it keeps the marker and answers SESSION_ROLLBACK_FAILED.",
    ),
    must(
        "C9",
        "verify the installed file",
        "The path names the temporary's inode, with the size written, and the path of the directory still \
        leads to it. A failure rolls back.",
    ),
    must("C10", "make the rename durable", "The directory's fsync succeeds. A failure rolls back."),
    must(
        "C11",
        "remove the marker",
        "The store's own marker, in at most three tries; one that is seen to be gone after an error counts \
        as removed. A failure rolls back, and one that is proved to be undone does not poison the store.",
    ),
    choice(
        "C11.code",
        "the answer after C11",
        "What is answered where the marker could not be removed and the roll back is proved.",
        "first-cause",
        &[
            answer("first-cause", "the error that the removal met, such as SESSION_IO"),
            answer("rollback-failed", "SESSION_ROLLBACK_FAILED"),
        ],
    ),
    must(
        "C12",
        "make the removal durable",
        "The directory's fsync is tried once more. Whatever it answers, the commit has succeeded.",
    ),
    must(
        "K1",
        "create: verify",
        "The name leaves room for the ones beside it, no marker is there, nothing has the path.",
    ),
    must("K2", "create: the temporary", "As C2, for the file that becomes the session."),
    must("K3", "create: write", "As C3, with the header's line."),
    must("K4", "create: make durable", "As C4."),
    must(
        "K5",
        "create: link",
        "The finished file gets the path as its name, which fails where the path is taken. After any error \
        path and temporary are compared: linked after all means that it is undone and the error answered.",
    ),
    must(
        "K6",
        "create: verify",
        "The path names what was written, and the path of the directory still leads to it.",
    ),
    must(
        "K7",
        "create: make the name durable",
        "The directory's fsync succeeds; else what was made is removed again.",
    ),
    must("K8", "create: remove the temporary", "Its failure leaves a stray and is no failure of the create."),
    must("K9", "create: make the removal durable", "Its failure is no failure of the create."),
    must("V1", "load: the directory", "It is opened, is a directory, and is what its path names."),
    must("V2", "load: the marker", "There is none."),
    must("V3", "load: a look at the file", "It is a regular file within the ceiling."),
    must("V4", "load: open", "What was opened is what was looked at."),
    must("V5", "load: read", "As many bytes as the look showed, from a file that did not change meanwhile."),
    must("V6", "load: another look", "Still no marker, and the path still names the file that was read."),
    must(
        "C20",
        "roll back",
        "By what the path names. The old generation: the marker is removed; one name of an inode is never \
        renamed over another. The temporary, the store's own copy, or nothing: the marker, where it is the \
        old generation, is renamed over the path in at most three tries with a look at both names after \
        each. Anything else, or nothing to be seen: left alone. Then the directory is made durable. It is \
        proved when the path is seen to hold the old generation or its copy and the marker is seen to be \
        gone: the first cause is answered and the store goes on. Otherwise the answer is \
        SESSION_ROLLBACK_FAILED with both causes, a marker that holds the old generation stays or is made, \
        loads refuse, and the store is poisoned: every later call that touches the disk gets that error and \
        writes nothing.",
    ),
    choice(
        "C20.copy",
        "when the marker cannot be renamed",
        "Whether the old generation is brought back from its open descriptor where no rename of the marker \
        succeeds.",
        "copies",
        &[
            answer("copies", "into a durable temporary of its own, which takes the path"),
            answer("gives-up", "SESSION_ROLLBACK_FAILED, and the store is poisoned"),
        ],
    ),
    must(
        "C21",
        "other people's files",
        "A store removes and replaces only what the operation itself made, and looks at it immediately \
        before. Between that look and the call nothing can be done: there it is enough that no acknowledged \
        entry of the store's own generations is lost and that the answer is typed. Such a case counts as a \
        race window.",
    ),
    must(
        "C22",
        "nothing is left behind",
        "No path leaks a descriptor. Nothing but the path and its three kinds of sibling is created, changed \
        or removed. After every failure but a kill the temporaries are gone, save the stray of C2 and one \
        whose removal failed.",
    ),
    must(
        "C23",
        "power cuts and kills",
        "At every instant the directory holds the old generation, the new one, or a marker beside either, so \
        that a load shows one of the two or refuses. Acknowledged entries are always there, what was never \
        submitted never is, and there is no third state.",
    ),
    must(
        "C24",
        "what failed stays failed",
        "A commit that failed, or was rolled back with proof and a durable directory, does not come back. \
        Where that last fsync failed, a power cut may show either generation until the next commit. A \
        submission answered with SESSION_ROLLBACK_FAILED after the rename began, and a create whose \
        clean-up could not be made durable, are in doubt; memory shows what was acknowledged, and the \
        caller loads again.",
    ),
    must(
        "C25",
        "permission bits",
        "A session starts with mode 0600 and no generation is open to more users than the one before it. \
        Owner, access control lists and extended attributes need not be carried over.",
    ),
    choice(
        "C25.mode",
        "permission bits over generations",
        "The bits of a file that somebody changed.",
        "carried",
        &[
            answer(
                "carried",
                "given to the next generation before it is made durable, without those of group and others \
                where owner or group would differ",
            ),
            answer("private", "the next generation has mode 0600 again"),
        ],
    ),
    must(
        "C26",
        "failed directory fsync",
        "A directory's fsync that fails is a failure of its stage, EPERM and EACCES among it; open are only \
        the two error numbers that mean that the file system has no such call.",
    ),
    choice(
        "C26.no-directory-sync",
        "no directory fsync at all",
        "A directory's fsync that answers EINVAL or ENOTSUP.",
        "counts-as-done",
        &[
            answer("counts-as-done", "and the store says on request that names are not made durable here"),
            answer("fails", "the stage fails like with every other error number"),
        ],
    ),
    must(
        "C27",
        "interrupted calls, missing hard links",
        "Open, read, write and lock are repeated after EINTR, a bounded number of times; an interrupted \
        fsync has failed. After an interrupted link, rename or unlink the store looks, as after any error. \
        On a file system without hard links (EPERM, ENOTSUP, EMLINK) a commit fails with SESSION_IO and \
        leaves nothing.",
    ),
    must("T1", "where a tree starts", "At the last stored entry; in an empty session at none."),
    must(
        "T2",
        "moving",
        "To an entry, or to none so that the next append is a root. An id that no entry has is \
        SESSION_ENTRY_NOT_FOUND and the leaf stays. The file is not touched.",
    ),
    must(
        "T3",
        "appending to a tree",
        "The input belongs to the tree before the call is queued. The leaf becomes the parent, and the new \
        entry becomes the leaf only once it is committed.",
    ),
    must(
        "T4",
        "active path",
        "The entries, and their messages, from the root down to the leaf; they never change.",
    ),
    must("T5", "inactive branches", "They stay among the entries and on disk, always."),
    must(
        "Q1",
        "order of calls",
        "The operations of a store and of its trees take effect in the order in which they were called. One \
        that fails does not stop the next.",
    ),
    must(
        "Q2",
        "concurrent appends of one tree",
        "They form one chain, in the order of the calls, and a move that is called after an append sees it.",
    ),
    must(
        "X1",
        "inspect",
        "Says in which state path, marker and stray temporaries are, by a name for each state, and changes \
        nothing. What cannot be read is SESSION_IO and no verdict.",
    ),
    must(
        "X2",
        "recover",
        "Brings a state whose outcome can be proved to its end; any other needs the caller's choice, and \
        what is not chosen is kept under a new name. Every step is durable before the next one relies on \
        it; after a crash or fault at any point, and when done twice, it ends in the same place. The only \
        copy of an entry is never removed.",
    ),
    must(
        "X3",
        "strays",
        "Temporaries that dead processes left are listed and removed on request: only ones that have such a \
        name, are regular files, and whose inode nobody has locked.",
    ),
    must(
        "X4",
        "open with recovery",
        "For callers that say so: recovers what can be proved, then loads, and tells what was done. A plain \
        load never recovers.",
    ),
    must(
        "B1",
        "one boundary",
        "Every access of the store to the file system goes through one boundary, one method for each system \
        call, at which a harness can fail, cut, delay or watch it. On the real file system a store makes \
        exactly the calls that the boundary shows.",
    ),
];

const fn must(id: &'static str, title: &'static str, text: &'static str) -> Requirement {
    Requirement { id, level: Level::Must, title, text }
}

const fn choice(
    id: &'static str,
    title: &'static str,
    text: &'static str,
    reference: &'static str,
    answers: &'static [Answer],
) -> Requirement {
    Requirement { id, level: Level::Choice { answers, reference }, title, text }
}

const fn answer(name: &'static str, means: &'static str) -> Answer {
    Answer { name, means }
}
