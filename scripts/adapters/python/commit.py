"""How a generation gets its place, durably, and how that is taken back."""

import errno
import os
import stat
import uuid

from place import OPEN, TRIES, Failure, Generation, fsync


def create(place, content):
    """K2 to K9. The link refuses an existing path, and what it makes visible is whole, durable and locked."""
    name, new = make_temporary(place, "", content, None, ("K2", "K3", "K4"))
    try:
        place.expect(name, new, "the temporary", "K5")
        try:
            place.link(name, place.name)
        except OSError as error:
            raise link_failed(place, new, error) from None
        place.expect(place.name, new, "the new session", "K6")
        place.check_root("K6")
        place.try_to("fsync the directory", "K7", place.sync_directory)
    except Failure:
        place.remove(place.name, new)
        place.remove(name, new)
        try_quietly(place.sync_directory)
        new.close()
        raise
    place.remove(name, new)
    try_quietly(place.sync_directory)
    place.unlock(new.descriptor)
    return new


def link_failed(place, new, error):
    try:
        seen = place.look_firmly(place.name)
    except OSError:
        seen = None
    if error.errno == errno.EEXIST and seen is not None and not new.is_same_file(seen):
        return Failure("SESSION_ALREADY_EXISTS", f"something is at {place.path}", error, "K5")
    return place.io("link the new session", error, "K5")


def commit(place, old, content):
    """C1 to C12. Gives the new generation, locked. The caller holds the lock of the old one."""
    present = place.check_storage(old, "C1")
    place.check_marker_absent("C1")
    place.check_name_length("C1")
    name, new = make_temporary(place, "", content, present, ("C2", "C3", "C4"))
    try:
        place.check_storage(old, "C5")
        place.expect(name, new, "the temporary", "C5")
        link_marker(place, old)
        verify_marker(place, old, new)
        rename(place, old, name, new)
        try:
            place.expect(place.name, new, "the installed generation", "C9")
            place.check_root("C9")
            place.try_to("fsync the directory", "C10", place.sync_directory)
            remove_marker(place, old)
        except Failure as cause:
            raise roll_back(place, old, new, cause) from None
    except Failure:
        place.remove(name, new)
        new.close()
        raise
    try_quietly(place.sync_directory)
    return new


def make_temporary(place, kind, content, like, stages):
    """A complete, durable, locked file of ours; `content` gives its bytes in pieces."""
    created, written, synced = stages
    name = f"{place.name}.pify-session-{kind}{os.getpid()}-{uuid.uuid4()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN
    descriptor = place.try_to("create a temporary", created, os.open, name, flags, 0o600, dir_fd=place.directory)
    new = None
    try:
        # The lock must outlive the descriptor that is written through.
        holder = place.try_to("open the temporary", created, os.open, name, os.O_RDONLY | OPEN, dir_fd=place.directory)
        new = Generation(holder)
        if not new.is_same_file(os.fstat(descriptor)):
            raise place.changed("the temporary was replaced", created)
        place.lock(holder, created)
        for piece in content:
            place.try_to("write the temporary", written, write_all, descriptor, piece)
        set_mode(place, descriptor, like, written)
        place.try_to("fsync the temporary", synced, fsync, descriptor)
        closing, descriptor = descriptor, None
        place.try_to("close the temporary", synced, os.close, closing)
        new.remember(place.try_to("look at the temporary", synced, os.fstat, holder))
        return name, new
    except (Failure, OSError):
        if descriptor is not None:
            new = new or Generation(os.dup(descriptor))
            os.close(descriptor)
        if new is not None:
            place.remove(name, new)
            new.close()
        raise


def write_all(descriptor, piece):
    left = memoryview(piece)
    while left:
        taken = os.write(descriptor, left)
        if taken == 0:
            raise OSError(errno.EIO, "a write made no progress")
        left = left[taken:]


def set_mode(place, descriptor, like, stage):
    if like is None:
        return
    ours = place.try_to("look at the temporary", stage, os.fstat, descriptor)
    mode = mode_like(like, ours)
    if ours.st_mode & 0o777 != mode:
        place.try_to("set the temporary's mode", stage, os.fchmod, descriptor, mode)


def mode_like(like, ours):
    mask = 0o777 if (like.st_uid, like.st_gid) == (ours.st_uid, ours.st_gid) else 0o700
    return like.st_mode & mask


def link_marker(place, old):
    try:
        place.link(place.name, place.marker)
    except OSError as error:
        cause = place.io("link the recovery marker", error, "C6")
        try:
            seen = place.look_firmly(place.marker)
        except OSError:
            raise without_marker(place, old, cause) from None
        if seen is None:
            raise cause from None
        if error.errno == errno.EEXIST:
            raise place.marker_is_there("C6", poisoned=True) from None
        raise without_marker(place, old, cause) from None


def verify_marker(place, old, new):
    try:
        marked = place.expect(place.marker, old, "the recovery marker", "C7")
        ours = place.try_to("look at the temporary", "C7", os.fstat, new.descriptor)
        if ours.st_mode & 0o777 != mode_like(marked, ours):
            raise place.changed("the mode changed during the commit", "C7")
        place.check_storage(old, "C7")
    except Failure as cause:
        raise without_marker(place, old, cause) from None


def without_marker(place, old, cause):
    """The failure, after the marker was taken away, if it is ours."""
    mine = [old]
    try:
        # A file that took the place of the session just before the link is what was linked.
        present = Generation(os.open(place.name, os.O_RDONLY | OPEN, dir_fd=place.directory))
        mine.append(present)
    except OSError:
        present = None
    try:
        if place.remove(place.marker, *mine):
            return cause
        try:
            foreign = not any(one.is_same_file(place.look_firmly(place.marker)) for one in mine)
        except OSError:
            foreign = False
        if foreign:
            return cause
        return unproved(place, cause, "the recovery marker cannot be removed")
    finally:
        if present is not None:
            present.close()


def rename(place, old, name, new):
    try:
        place.rename(name, place.name)
        return
    except OSError as error:
        cause = place.io("rename the temporary over the session", error, "C8")
    try:
        seen = place.look_firmly(place.name)
    except OSError:
        raise unproved(place, cause, "the session cannot be seen") from None
    if old.is_same_file(seen):
        raise without_marker(place, old, cause)
    if seen is None or new.is_same_file(seen):
        raise roll_back(place, old, new, cause)
    raise unproved(place, cause, "something else has the session's name")


def remove_marker(place, old):
    if not place.remove(place.marker, old):
        error = OSError(errno.EIO, "it stays")
        raise place.io("remove the recovery marker", error, "C11")


def roll_back(place, old, new, cause):
    """C20. The failure to answer, after everything that could be done."""
    restored = None
    for _ in range(TRIES):
        try:
            seen = place.look(place.name)
            if old.is_same_file(seen):
                # Never rename one link of an inode over another: that does nothing, and succeeds.
                place.remove(place.marker, old)
                break
            if seen is not None and not new.is_same_file(seen):
                break
            if not old.is_same_file(place.look(place.marker)):
                break
            place.rename(place.marker, place.name)
        except OSError:
            pass
    else:
        restored = restore_copy(place, old, new)
    if not is_proved(place, old):
        if restored is None:
            keep_copy(place, old)
            try_quietly(place.sync_directory)
            return unproved(place, cause, "the roll back cannot be proved")
    try_quietly(place.sync_directory)
    cause.restored = restored
    return cause


def is_proved(place, old):
    try:
        return old.is_same_file(place.look_firmly(place.name)) and place.look_firmly(place.marker) is None
    except OSError:
        return False


def restore_copy(place, old, new):
    """A copy of the old generation in its place, where the marker could not be renamed; None where that fails too."""
    try:
        like = os.fstat(old.descriptor)
        name, copy = make_temporary(place, "restore-", pieces(old), like, ("C20", "C20", "C20"))
    except (Failure, OSError):
        return None
    try:
        seen = place.look(place.name)
        if seen is None or new.is_same_file(seen):
            place.rename(name, place.name)
            if copy.is_same_file(place.look(place.name)) and place.remove(place.marker, old):
                return copy
    except OSError:
        pass
    place.remove(name, copy)
    copy.close()
    return None


def keep_copy(place, old):
    """A copy at the marker's name, where no name holds the old generation any more."""
    try:
        if any(old.is_same_file(place.look_firmly(name)) for name in (place.name, place.marker)):
            return
        like = os.fstat(old.descriptor)
        name, copy = make_temporary(place, "restore-", pieces(old), like, ("C20", "C20", "C20"))
    except (Failure, OSError):
        return
    try:
        place.link(name, place.marker)
    except OSError:
        pass
    place.remove(name, copy)
    copy.close()


def pieces(generation):
    offset = 0
    while offset < generation.size:
        piece = os.pread(generation.descriptor, min(1 << 16, generation.size - offset), offset)
        if not piece:
            raise OSError(errno.EIO, "the old generation was cut short")
        yield piece
        offset += len(piece)


def unproved(place, cause, why):
    both = f"{why}: {place.path}; after: {cause}"
    return Failure("SESSION_ROLLBACK_FAILED", both, cause.cause, cause.stage or "C20", poisoned=True)


def try_quietly(call):
    try:
        call()
    except OSError:
        pass


def is_regular(seen):
    return stat.S_ISREG(seen.st_mode)
