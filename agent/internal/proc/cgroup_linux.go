package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the names of the cgroups that are made here. What has another name
// is never emptied or removed.
const cgroupPrefix = "harp."

// agentCgroup is the name of the cgroup that agents are in where commands have limits: the
// kernel puts none on those inside a cgroup that has processes itself.
const agentCgroup = "harp-agent"

// cgroup is the directory of a cgroup v2; empty: none.
type cgroup string

// NewCgroup makes a cgroup inside that of this process, or beside it if that is called
// harp-agent, for [Options.Cgroup]. The name is
// of letters, digits, '.', '_' and '-'. An empty one that was left behind is taken over;
// fs.ErrExist says that there is one with processes in it. [ErrNoCgroups] says that none
// can be had here, and why; in an *[ExecError], that there may be no more of them now.
func NewCgroup(name string) (dir string, err error) {
	parent, err := ownCgroup(proc)
	if err != nil {
		return "", err
	}
	return newCgroup(parent, name)
}

// ProbeCgroups tries whether [NewCgroup] can make cgroups here, by making one. If not, the
// error is [ErrNoCgroups] and says why.
func ProbeCgroups() error {
	dir, err := NewCgroup(fmt.Sprintf("probe-%d", os.Getpid()))
	if err != nil {
		return err
	}
	return cgroup(dir).remove()
}

func newCgroup(parent, name string) (string, error) {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		return "", fmt.Errorf("%w: %q cannot be a name", fs.ErrInvalid, name)
	}
	dir := filepath.Join(parent, cgroupPrefix+name)
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		members, unknown := cgroup(dir).members()
		if unknown != nil || len(members) > 0 {
			return "", err
		}
		err = nil
	}
	if errors.Is(err, unix.EAGAIN) {
		return "", &ExecError{stageCgroup, fmt.Errorf("%w: as many as cgroup.max.descendants or cgroup.max.depth allows: %w", ErrNoCgroups, err)}
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCgroups, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		_ = os.Remove(dir) // an empty one
		return "", fmt.Errorf("%w: this kernel cannot end one (it is older than 5.14)", ErrNoCgroups)
	}
	return dir, nil
}

// ownCgroup returns the directory of the cgroup v2 that this process is in, or of that
// around it if it is in one for agents, if processes may be put into its children.
func ownCgroup(p procfs) (string, error) {
	mount, root, err := p.cgroupMount()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCgroups, err)
	}
	b, err := os.ReadFile(filepath.Join(string(p), "self", "cgroup"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCgroups, err)
	}
	for line := range strings.Lines(string(b)) {
		own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		own = strings.TrimSuffix(own, "/"+agentCgroup)
		below, ok := strings.CutPrefix(own, strings.TrimSuffix(root, "/"))
		if !ok || strings.Contains(own, "/..") {
			return "", fmt.Errorf("%w: that of this process, %s, is not mounted", ErrNoCgroups, own)
		}
		dir := filepath.Join(mount, below)
		// To put a process into a child, the kernel wants this for what both are in.
		if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
			return "", fmt.Errorf("%w: %s is not ours to write: %w", ErrNoCgroups, dir, err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("%w: this process is in none", ErrNoCgroups)
}

// cgroupMount returns where cgroup v2 is mounted, and which of its directories.
func (p procfs) cgroupMount() (mount, root string, err error) {
	f, err := os.Open(filepath.Join(string(p), "self", "mountinfo"))
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		about, kind, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(about)
		if ok && strings.HasPrefix(kind, "cgroup2 ") && len(fields) >= 5 {
			return unescape(fields[4]), unescape(fields[3]), nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", "", err
	}
	return "", "", errors.New("it is not mounted")
}

// unescape undoes what proc(5) does to paths with blanks in them.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// within returns the cgroup and those below it, which the command may have made. An error
// says that they are not known.
func (c cgroup) within() (dirs []string, err error) {
	if !strings.HasPrefix(filepath.Base(string(c)), cgroupPrefix) {
		return nil, nil
	}
	err = filepath.WalkDir(string(c), func(path string, d fs.DirEntry, err error) error {
		switch {
		case IsShort(err):
			return err
		case err == nil && d.IsDir():
			dirs = append(dirs, path)
		}
		return nil // one that is gone meanwhile is empty
	})
	return dirs, err
}

// members returns the processes in the cgroup. An error says that they are not known.
func (c cgroup) members() (map[int]bool, error) {
	dirs, err := c.within()
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, dir := range dirs {
		in, err := processesOf(dir)
		if IsShort(err) {
			return nil, err
		}
		maps.Copy(found, in)
	}
	return found, nil
}

// processesOf returns the processes in a directory, without those below it.
func processesOf(dir string) (map[int]bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	found := map[int]bool{}
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil && pid > 0 {
			found[pid] = true
		}
	}
	return found, err
}

// kill ends everything in the cgroup at once. What it did shows at the next look.
func (c cgroup) kill() {
	if strings.HasPrefix(filepath.Base(string(c)), cgroupPrefix) {
		_ = os.WriteFile(filepath.Join(string(c), "cgroup.kill"), []byte("1"), 0)
	}
}

// remove removes the cgroup and those below it, once nothing is in them.
func (c cgroup) remove() error {
	dirs, err := c.within()
	errs := []error{err}
	for i := len(dirs) - 1; i >= 0; i-- { // those below come after it
		if err := unix.Rmdir(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, &fs.PathError{Op: "rmdir", Path: dirs[i], Err: err})
		}
	}
	return errors.Join(errs...)
}

// release puts what is in the cgroup into the one it was made in, and removes it.
func (c cgroup) release() error {
	const rounds = 10 // what is born meanwhile is in it
	into := filepath.Dir(string(c))
	if leaf := filepath.Join(into, agentCgroup); isDir(leaf) {
		into = leaf // what is around it may have none
	}
	for range rounds {
		members, err := c.members()
		if err != nil || len(members) == 0 {
			break
		}
		move(members, into)
	}
	return c.remove()
}

// move puts processes into a cgroup.
func move(pids map[int]bool, dir string) {
	for pid := range pids {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) // it may be gone
	}
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// SweepCgroups removes the cgroups that [NewCgroup] has made where it would make them now, in which nothing is and which
// are older than an age: as those of commands whose agent and supervisor were killed before one knew of them.
func SweepCgroups(age time.Duration) {
	if parent, err := ownCgroup(proc); err == nil {
		sweepCgroups(parent, age)
	}
}

func sweepCgroups(parent string, age time.Duration) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // tried again by the next agent
	}
	for _, entry := range entries {
		dir := filepath.Join(parent, entry.Name())
		info, err := entry.Info()
		if err != nil || !entry.IsDir() || time.Since(info.ModTime()) < age {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err == nil && strings.Contains(string(b), "populated 0") {
			_ = cgroup(dir).remove() // something may be in it now, and what was not made here stays
		}
	}
}
