"""One session's names in its directory, and what may be done to them.

Every name is taken relative to a descriptor of the directory, so that a directory which is replaced meanwhile is
noticed and never written to.
"""

import ctypes
import errno
import fcntl
import os
import stat
import time
import uuid

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF)
NO_DIRECTORY_SYNC = (errno.EINVAL, errno.EOPNOTSUPP)
TRIES = 3
WAITS = 400  # of 10 ms: stays below the 5 s that a call may wait
OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """A refusal, with its stable code."""

    def __init__(self, code, message, cause=None, stage=None, line=None, poisoned=False, in_flight=False):
        super().__init__(message)
        self.code = code
        self.cause = cause  # the OSError behind it
        self.stage = stage
        self.line = line
        self.poisoned = poisoned
        self.in_flight = in_flight

    def __str__(self):
        return f"{self.args[0]}: {self.cause}" if self.cause else self.args[0]


def fsync(descriptor):
    """Once. `os.fsync` repeats a call that was interrupted, and the second one may succeed over lost bytes."""
    if libc.fsync(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Generation:
    """A file that was looked at, held open, so that its inode cannot be given to another file."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.remember(os.fstat(descriptor))

    def remember(self, seen):
        self.identity = (seen.st_dev, seen.st_ino)
        self.size, self.modified = seen.st_size, seen.st_mtime_ns

    def is_same_file(self, seen):
        return seen is not None and (seen.st_dev, seen.st_ino) == self.identity

    def is_unchanged_in(self, seen):
        return self.is_same_file(seen) and (seen.st_size, seen.st_mtime_ns) == (self.size, self.modified)

    def close(self):
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class Place:
    def __init__(self, path, stage):
        self.path = path
        directory, self.name = os.path.split(path)
        self.directory_path = directory or "."
        if self.name in ("", ".", ".."):
            raise Failure("SESSION_IO", f"{path} names no file", OSError(errno.EISDIR, "is a directory"), stage)
        self.marker = self.name + ".pify-session-recovery"
        looked = self.try_to("look at the directory", stage, os.lstat, self.directory_path)
        if not stat.S_ISDIR(looked.st_mode):
            raise Failure("SESSION_ROOT_CHANGED", f"{self.directory_path} is not a directory", None, stage)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.directory = self.try_to("open the directory", stage, os.open, self.directory_path, flags)
        opened = os.fstat(self.directory)
        self.root = (opened.st_dev, opened.st_ino)
        if (looked.st_dev, looked.st_ino) != self.root:
            self.close()
            raise Failure("SESSION_ROOT_CHANGED", "the directory was replaced", None, stage)

    def close(self):
        if self.directory is not None:
            os.close(self.directory)
            self.directory = None

    # Errors

    def try_to(self, what, stage, call, *arguments, **options):
        try:
            return call(*arguments, **options)
        except OSError as error:
            raise self.io(what, error, stage) from None

    def io(self, what, error, stage):
        return Failure("SESSION_IO", f"cannot {what} of {self.path}", error, stage)

    def changed(self, what, stage, cause=None):
        return Failure("SESSION_FILE_CHANGED", f"{what}: {self.path}", cause, stage)

    def marker_is_there(self, stage, **marks):
        return Failure("SESSION_ROLLBACK_FAILED", f"a recovery marker is beside {self.path}", None, stage, **marks)

    # Looks

    def look(self, name):
        """None where nothing has the name."""
        try:
            return os.stat(name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def look_firmly(self, name):
        for _ in range(TRIES - 1):
            try:
                return self.look(name)
            except OSError:
                pass
        return self.look(name)

    def check_root(self, stage):
        try:
            seen = os.lstat(self.directory_path)
        except OSError as error:
            if error.errno in GONE:
                raise Failure("SESSION_ROOT_CHANGED", "the directory is gone", error, stage) from None
            raise self.io("look at the directory", error, stage) from None
        if (seen.st_dev, seen.st_ino) != self.root:
            raise Failure("SESSION_ROOT_CHANGED", "the directory was replaced", None, stage)

    def expect(self, name, generation, what, stage):
        """That the name still means this generation, unchanged."""
        try:
            seen = os.stat(name, dir_fd=self.directory, follow_symlinks=False)
        except OSError as error:
            if error.errno in GONE:
                raise self.changed(f"{what} is gone", stage, error) from None
            raise self.io(f"look at {what}", error, stage) from None
        if not generation.is_unchanged_in(seen):
            raise self.changed(f"{what} was replaced or changed", stage)
        return seen

    def check_storage(self, generation, stage):
        self.check_root(stage)
        return self.expect(self.name, generation, "the session", stage)

    def check_name_length(self, stage):
        restore = f"{self.name}.pify-session-restore-{'9' * 10}-{uuid.uuid4()}"
        limit = self.try_to("ask for the name limit", stage, os.fstatvfs, self.directory).f_namemax
        if len(os.fsencode(restore)) > limit:
            raise self.io("name siblings", OSError(errno.ENAMETOOLONG, "name too long"), stage)

    def check_marker_absent(self, stage):
        if self.try_to("look for a recovery marker", stage, self.look, self.marker) is not None:
            raise self.marker_is_there(stage)

    def settle_marker(self, stage):
        """Waits for a commit in flight; refuses a marker that nobody holds."""
        for _ in range(WAITS):
            seen = self.try_to("look for a recovery marker", stage, self.look, self.marker)
            if seen is None:
                return
            if not stat.S_ISREG(seen.st_mode) or self.marker_is_abandoned(seen, stage):
                raise self.marker_is_there(stage)
            time.sleep(0.01)
        raise self.marker_is_there(stage, in_flight=True)

    def marker_is_abandoned(self, seen, stage):
        try:
            descriptor = os.open(self.marker, os.O_RDONLY | OPEN, dir_fd=self.directory)
        except OSError as error:
            if error.errno in GONE:
                return False
            raise self.io("open the recovery marker", error, stage) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            again = self.look(self.marker)
            return again is not None and (again.st_dev, again.st_ino) == (seen.st_dev, seen.st_ino)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in NO_LOCKS:
                return True
            raise self.io("lock the recovery marker", error, stage) from None
        finally:
            os.close(descriptor)

    # Acts

    def lock(self, descriptor, stage):
        """Exclusively. Waits for other processes, and does without where the file system has no locks."""
        for _ in range(WAITS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.01)
            except OSError as error:
                if error.errno in NO_LOCKS:
                    return
                raise self.io("lock the file", error, stage) from None
        busy = OSError(errno.EAGAIN, "another process holds the lock")
        raise Failure("SESSION_IO", f"cannot lock {self.path}", busy, stage, in_flight=True)

    def unlock(self, descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError:
            pass  # where there are no locks

    def link(self, name, other):
        os.link(name, other, src_dir_fd=self.directory, dst_dir_fd=self.directory, follow_symlinks=False)

    def rename(self, name, other):
        os.rename(name, other, src_dir_fd=self.directory, dst_dir_fd=self.directory)

    def remove(self, name, *mine):
        """Whether the name is gone, which it may only be made where it means one of `mine`."""
        for _ in range(TRIES):
            try:
                seen = self.look(name)
                if seen is None:
                    return True
                if not any(generation.is_same_file(seen) for generation in mine):
                    return False
                os.unlink(name, dir_fd=self.directory)
                return True
            except OSError:
                pass
        try:
            return self.look_firmly(name) is None
        except OSError:
            return False

    def sync_directory(self):
        try:
            fsync(self.directory)
        except OSError as error:
            if error.errno not in NO_DIRECTORY_SYNC:
                raise
