package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cpuPeriod is what [Limits].CPU is of, in microseconds.
const cpuPeriod = 100_000

// HasController reports whether this machine has cgroup v2 with a controller that could be
// given to commands, such as memory, and changes nothing. If not, the error is
// [ErrNoCgroups] and says why. Whether a process may use it is known to that alone: see
// [EnableController].
func HasController(name string) error {
	mount, _, err := proc.cgroupMount()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoCgroups, err)
	}
	return hasController(mount, name)
}

func hasController(dir, name string) error {
	is, err := lists(dir, "cgroup.controllers", name)
	if err == nil && !is {
		err = fmt.Errorf("%s has no controller %s, which cgroup v1 has then, or nobody has delegated", dir, name)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoCgroups, err)
	}
	return nil
}

// EnableController gives a controller to the cgroups that [NewCgroup] makes. As none may be
// given to those inside a cgroup with processes in it, this process and what else is in its
// cgroup is put into one inside of that, which is called harp-agent, unless it is in such a
// one. Where the cgroup is a unit of systemd that is refused: systemd could not start the
// unit again while commands run. If it cannot be, the error is [ErrNoCgroups] and says why.
func EnableController(name string) error {
	dir, err := ownCgroup(proc)
	if err != nil {
		return err
	}
	return enableController(dir, name)
}

func enableController(dir, name string) error {
	if err := hasController(dir, name); err != nil {
		return err
	}
	if is, err := lists(dir, "cgroup.subtree_control", name); is || err != nil {
		return err
	}
	err := makeRoom(dir)
	if err == nil {
		err = set(dir, "cgroup.subtree_control", "+"+name)
	}
	if err != nil {
		return fmt.Errorf("%w: the controller %s cannot be enabled: %w", ErrNoCgroups, name, err)
	}
	return nil
}

// unitSuffixes end the names of the cgroups that systemd minds.
var unitSuffixes = []string{".service", ".scope", ".slice"}

// makeRoom puts what is in a cgroup into the one for agents inside of it.
func makeRoom(dir string) error {
	const rounds = 10 // what is born meanwhile is in it
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return nil // the root of all may have both
	}
	leaf := filepath.Join(dir, agentCgroup)
	for range rounds {
		in, err := processesOf(dir)
		if err != nil || len(in) == 0 {
			return err
		}
		if in[os.Getpid()] && slices.Contains(unitSuffixes, filepath.Ext(dir)) {
			return fmt.Errorf("systemd's %s needs DelegateSubgroup=%s, which systemd 254 and newer know", filepath.Base(dir), agentCgroup)
		}
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		move(in, leaf)
	}
	return nil // the kernel says whether anything is left in it
}

// lists reports whether a file of a cgroup names a controller.
func lists(dir, file, name string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	return slices.Contains(strings.Fields(string(b)), name), err
}

// set writes to a file of a cgroup.
func set(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// limit sets limits, before anything is in the cgroup.
func (c cgroup) limit(l Limits) error {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, s := range []struct {
		limit       int64
		file, value string
	}{
		{l.Memory, "memory.max", number(l.Memory)},
		{l.Memory, "memory.oom.group", "1"}, // not one of them, of which the others know nothing
		{l.Memory, "memory.swap.max", "0"},
		{l.CPU, "cpu.max", fmt.Sprintf("%d %d", l.CPU, cpuPeriod)},
		{l.PIDs, "pids.max", number(l.PIDs)},
	} {
		if s.limit == 0 {
			continue
		}
		err := set(string(c), s.file, s.value)
		if s.file == "memory.swap.max" && errors.Is(err, fs.ErrNotExist) {
			continue // swap is not counted here
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// outOfMemory reports whether processes were killed because of the limit of this cgroup,
// not because the machine, or what is around it, had no memory left.
func (c cgroup) outOfMemory() bool {
	b, _ := os.ReadFile(filepath.Join(string(c), "memory.events")) // without it there is no limit
	count := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		count[name] = n
	}
	happened := func(name string) bool { return count[name] != "" && count[name] != "0" }
	return happened("oom") && happened("oom_kill")
}
