//go:build unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

var errNoGroup = errors.New("not in the user database: it needs a group, and what supplementary ones it has")

// credential is whom a command runs as.
type credential struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"` // the supplementary ones, all of them
}

func (c credential) groups() []int {
	groups := make([]int, len(c.Groups))
	for i, g := range c.Groups {
		groups[i] = int(g)
	}
	return groups
}

// credential returns whom the command runs as; nil: as this process.
func (s Spec) credential() (*credential, error) {
	if s.User == "" && s.Group == "" && s.Groups == nil {
		return nil, nil
	}
	c, err := s.resolve()
	if err != nil {
		return nil, &ExecError{stageUser, err}
	}
	if s.Groups == nil && os.Geteuid() != 0 && c.UID == uint32(os.Geteuid()) && c.GID == uint32(os.Getegid()) {
		return nil, nil // nothing changes, and nothing could
	}
	return c, nil
}

func (s Spec) resolve() (*credential, error) {
	if err := CheckFiles(); err != nil {
		return nil, err
	}
	name := s.User
	if name == "" {
		name = strconv.Itoa(os.Geteuid())
	}
	who, uid, err := lookupUser(name)
	if err != nil {
		return nil, err
	}
	c := &credential{UID: uid}
	switch {
	case s.Group != "":
		c.GID, err = lookupGroup(s.Group)
	case who != nil:
		c.GID, err = number(who.Gid)
	default:
		err = fmt.Errorf("user %s: %w", name, errNoGroup)
	}
	if err != nil {
		return nil, err
	}
	groups := s.Groups
	if groups == nil && who != nil {
		if groups, err = who.GroupIds(); err != nil {
			return nil, err
		}
	}
	for _, name := range groups {
		gid, err := lookupGroup(name)
		if err != nil {
			return nil, err
		}
		c.Groups = append(c.Groups, gid)
	}
	return c, nil
}

// lookupFiles is how many files the lookup of a user may have open at a time.
const lookupFiles = 8

// CheckFiles returns an error if the files are not to be had that are needed to look up a user and its groups:
// without them the system's libraries say that there is no such user, or that it has no groups.
func CheckFiles() error {
	for range lookupFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	return nil
}

// lookupUser returns a user by name or number; one by number need not be in the database,
// and is nil then.
func lookupUser(name string) (*user.User, uint32, error) {
	who, err := user.Lookup(name)
	if err != nil {
		uid, notNumber := number(name)
		if notNumber != nil {
			return nil, 0, err
		}
		if who, err = user.LookupId(name); err != nil {
			return nil, uid, nil //nolint:nilerr // a number is enough
		}
	}
	uid, err := number(who.Uid)
	return who, uid, err
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		if gid, notNumber := number(name); notNumber == nil {
			return gid, nil
		}
		return 0, err
	}
	return number(g.Gid)
}

// number reads an id. The highest of all means "leave it as it is" to the kernel.
func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n == 1<<32-1 {
		err = strconv.ErrRange
	}
	return uint32(n), err
}
