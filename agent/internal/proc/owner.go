//go:build unix

package proc

import "os"

// Owner returns the ids of the user and group that the command would run as. The error is
// a *[ExecError].
func (s Spec) Owner() (uid, gid int, err error) {
	c, err := s.credential()
	if err != nil {
		return 0, 0, err
	}
	if c == nil {
		return os.Geteuid(), os.Getegid(), nil
	}
	return int(c.UID), int(c.GID), nil
}

// Self returns the identity of this process.
func Self() Identity { return identify(os.Getpid()) }

// CloseOnExec sees to it that no descriptor but the first three reaches the commands that
// this process starts without a launcher, also none that it was itself started with.
func CloseOnExec() { closeOnExec() }
