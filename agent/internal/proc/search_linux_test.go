package proc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

func TestSearch(t *testing.T) {
	const self = 50
	base := []member{
		{pid: 1},
		{pid: 40, parent: 1, start: 4},
		{pid: self, parent: 40, start: 5}, // the agent and its parent
		{pid: 100, parent: self, group: 100, session: 100, start: 10}, // the leader
		{pid: 200, parent: self, group: 200, session: 200, start: 11}, // another command
		{pid: 201, parent: 200, group: 200, session: 200, start: 12},
		{pid: 300, parent: 1, group: 300, session: 300, start: 13}, // somebody
	}
	leader := Identity{PID: 100, Start: 10}
	marks := func(pids ...int) func(int) (bool, error) {
		return func(pid int) (bool, error) { return slices.Contains(pids, pid), nil }
	}
	for name, c := range map[string]struct {
		search search
		more   []member
		want   []int
	}{
		"descendants": {
			search{leader: leader, held: true},
			[]member{
				{pid: 101, parent: 100, group: 101, session: 101, start: 11},
				{pid: 102, parent: 101, group: 102, session: 102, start: 12},
			},
			[]int{100, 101, 102},
		},
		"orphans in its group and session": {
			search{leader: leader, held: true},
			[]member{{pid: 101, parent: 1, group: 100, session: 100, start: 11}, {pid: 102, parent: 1, group: 102, session: 100, start: 11}},
			[]int{100, 101, 102},
		},
		"an older child of the number": {
			search{leader: leader, held: true},
			[]member{{pid: 101, parent: 100, group: 7, session: 7, start: 9}},
			[]int{100},
		},
		"a number of another": {
			search{leader: Identity{PID: 100, Start: 9}},
			[]member{{pid: 101, parent: 1, group: 100, session: 100, start: 11}},
			nil,
		},
		"the dead pass on what they had": {
			search{leader: leader, held: true},
			[]member{{pid: 101, parent: 100, start: 11, dead: true}, {pid: 102, parent: 101, start: 12}},
			[]int{100, 102},
		},
		"the adopted": {
			search{leader: leader, held: true, adopted: true},
			[]member{{pid: 101, parent: self, group: 9, session: 9, start: 11}},
			[]int{100, 101, 200, 201},
		},
		"the adopted, with other commands": {
			search{leader: leader, held: true, adopted: true, others: map[int]bool{200: true}, cookied: marks(102)},
			[]member{{pid: 101, parent: self, start: 11}, {pid: 102, parent: self, start: 11}},
			[]int{100, 102},
		},
		"the marked, but not this process and its parents": {
			search{leader: leader, held: true, cookied: marks(1, 40, self, 300, 101)},
			[]member{{pid: 101, parent: 1, start: 9}}, // older than the leader
			[]int{100, 300},
		},
		"the session of one that is marked": {
			search{leader: Identity{PID: 99, Start: 10}, cookied: marks(101)},
			[]member{
				{pid: 101, parent: 1, group: 101, session: 99, start: 11},
				{pid: 102, parent: 1, group: 102, session: 99, start: 11},
				{pid: 103, parent: 1, group: 99, session: 1, start: 11},
			},
			[]int{101, 102},
		},
		"one that is marked in the group and session of all, of a leader that is not known": {
			search{cookied: marks(101)},
			[]member{{pid: 101, parent: self, start: 11}, {pid: 102, parent: 40, start: 11}},
			[]int{101},
		},
		"what was found before, but no other of its number": {
			search{leader: Identity{PID: 99, Start: 10}, seen: func(k key) bool { return k == key{101, 11} || k == key{300, 12} }},
			[]member{{pid: 101, parent: 1, start: 11}, {pid: 102, parent: 101, start: 12}},
			[]int{101, 102},
		},
		"what is in the cgroup": {
			search{leader: Identity{PID: 99, Start: 10}, inside: map[int]bool{300: true, self: true}},
			nil,
			[]int{300},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.search.self = self
			var got []int
			found, err := c.search.of(slices.Concat(base, c.more))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range found {
				got = append(got, m.pid)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	const rest = " 1 22 33 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9 9"
	m, err := parseStat(7, []byte("7 (a) Z 5 (\n) S"+rest))
	if want := (member{pid: 7, name: "a) Z 5 (\n", parent: 1, group: 22, session: 33, start: 4711}); err != nil || m != want {
		t.Errorf("got %+v, %v, want %+v", m, err, want)
	}
	if m, err := parseStat(7, []byte("7 (a) Z"+rest)); err != nil || !m.dead {
		t.Errorf("got %+v, %v, want it dead", m, err)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 1 2", "7 (a) S x" + rest} {
		if _, err := parseStat(7, []byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// A signal is for the process that was seen, not for the one that has its number now.
func TestSignalIsNotForAnother(t *testing.T) {
	p := startPiped(t, shell("exec sleep 1000"), Options{})
	m, err := proc.member(p.Identity().PID)
	if err != nil {
		t.Fatal(err)
	}
	m.start++
	if m.signal(9) || !alive(p.Identity()) {
		t.Error("another process was ended")
	}
}

// fakeProc is a procfs that says where cgroups are.
func fakeProc(t *testing.T, mountinfo, own string) procfs {
	t.Helper()
	dir := t.TempDir()
	self := filepath.Join(dir, "self")
	if err := os.Mkdir(self, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(self, "mountinfo"), mountinfo)
	write(t, filepath.Join(self, "cgroup"), own)
	return procfs(dir)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOwnCgroup(t *testing.T) {
	mount := filepath.Join(t.TempDir(), "c group")
	for _, dir := range []string{"agent", "docker/x"} {
		if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(mount, "cgroup.procs"), "")
	write(t, filepath.Join(mount, "agent", "cgroup.procs"), "")
	at := func(root string) string {
		return "24 30 0:22 / /proc rw - proc proc rw\n" +
			"31 30 0:27 " + root + " " + filepath.Dir(mount) + `/c\040group rw,nosuid shared:9 - cgroup2 cgroup2 rw` + "\n"
	}
	for name, c := range map[string]struct{ mountinfo, own, want string }{
		"a service":         {at("/"), "0::/agent\n", mount + "/agent"},
		"one for agents":    {at("/"), "0::/agent/harp-agent\n", mount + "/agent"},
		"the root":          {at("/"), "1:cpu:/x\n0::/\n", mount},
		"part is mounted":   {at("/docker/1"), "0::/docker/1/agent\n", mount + "/agent"},
		"its own namespace": {at("/.."), "0::/agent\n", ""},
		"not writable":      {at("/"), "0::/docker/x\n", ""},
		"outside":           {at("/"), "0::/../agent\n", ""},
		"v1 only":           {"31 30 0:27 / /c rw - cgroup cgroup rw,cpu\n", "1:cpu:/x\n", ""},
		"not of a cgroup":   {at("/"), "1:cpu:/x\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ownCgroup(fakeProc(t, c.mountinfo, c.own))
			if got != c.want || errors.Is(err, ErrNoCgroups) != (c.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestNewCgroupTakesOverOnlyAnEmptyOne(t *testing.T) {
	parent := t.TempDir()
	if dir, err := newCgroup(parent, "old"); !errors.Is(err, ErrNoCgroups) || exists(filepath.Join(parent, "harp.old")) {
		t.Errorf("of an old kernel: %q, %v", dir, err)
	}
	for _, name := range []string{"", "a/b", "..\x00", "ä"} {
		if dir, err := newCgroup(parent, name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %q, %v", name, dir, err)
		}
	}
	dir := fakeCgroup(t, parent, "harp.1")
	if got, err := newCgroup(parent, "1"); got != dir || err != nil {
		t.Errorf("an empty one: %q, %v", got, err)
	}
	write(t, filepath.Join(dir, "cgroup.procs"), "12\n")
	if got, err := newCgroup(parent, "1"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("one that is not empty: %q, %v", got, err)
	}
}

func fakeCgroup(t *testing.T, parent, name string) string {
	t.Helper()
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cgroup.procs"), "")
	write(t, filepath.Join(dir, "cgroup.kill"), "")
	return dir
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func TestCgroupFiles(t *testing.T) {
	parent := t.TempDir()
	dir := fakeCgroup(t, parent, "harp.1")
	write(t, filepath.Join(dir, "cgroup.procs"), "12\n13\n0\n")
	write(t, filepath.Join(fakeCgroup(t, dir, "below"), "cgroup.procs"), "14\n")
	c := cgroup(dir)
	members, err := c.members()
	if err != nil || len(members) != 3 || !members[12] || !members[13] || !members[14] {
		t.Errorf("got %v, %v", members, err)
	}
	c.kill()
	if got := read(t, filepath.Join(dir, "cgroup.kill")); got != "1" {
		t.Errorf("cgroup.kill holds %q", got)
	}

	other := cgroup(fakeCgroup(t, parent, "system.slice"))
	write(t, filepath.Join(string(other), "cgroup.procs"), "15\n")
	other.kill()
	members, err = other.members()
	if got := read(t, filepath.Join(string(other), "cgroup.kill")); got != "" || len(members) > 0 || err != nil {
		t.Errorf("what is not ours was touched: %q, %v, %v", got, members, err)
	}
}

func TestCgroup(t *testing.T) {
	if err := ProbeCgroups(); err != nil {
		needs.Missing(t, err)
	}
	name := "test-" + strconv.Itoa(os.Getpid())
	dir, err := NewCgroup(name)
	if err != nil {
		t.Fatal(err)
	}
	script := `grep 0:: /proc/self/cgroup; mkdir ` + dir + `/below; echo $$ >` + dir + `/below/cgroup.procs; echo up; exec sleep 1000`
	p := startPiped(t, shell(script), Options{Cgroup: dir})
	if got := p.line(t); filepath.Base(got) != filepath.Base(dir) {
		t.Errorf("it begins in %s, not in %s", got, dir)
	}
	p.line(t)
	if members, err := cgroup(dir).members(); err != nil || !members[p.Identity().PID] {
		t.Errorf("it is not in its cgroup, %v are: %v", members, err)
	}
	if got, err := NewCgroup(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("taken over while it is used: %q, %v", got, err)
	}
	p.End(0)
	p.Wait()
	if exists(dir) {
		t.Error("it is not removed")
	}
}
