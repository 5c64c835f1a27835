//go:build unix

package proc

import "os"

// Owner returns whom the command would run as. The error is a *[ExecError].
func (s Spec) Owner() (Owner, error) {
	c, err := s.credential()
	if err != nil {
		return Owner{}, err
	}
	if c == nil {
		groups, err := os.Getgroups()
		return Owner{os.Geteuid(), os.Getegid(), groups}, err
	}
	return Owner{int(c.UID), int(c.GID), c.groups()}, nil
}

// Self returns the identity of this process. The error says that it cannot be had just now, for want of files, say.
func Self() (Identity, error) {
	id, err := identity(os.Getpid())
	if IsShort(err) {
		return Identity{}, err
	}
	return id, nil
}

// IdentityOf returns the identity of a child of this process that is not reaped.
func IdentityOf(pid int) Identity { return identify(pid) }

// CloseOnExec sees to it that no descriptor but the first three reaches the commands that
// this process starts without a launcher, also none that it was itself started with.
func CloseOnExec() { closeOnExec() }
