package journal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// copyFiles copies the files of a directory to another, which it makes if it is not there, in
// the place of what is there.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o700))
	files, err := os.ReadDir(from)
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		must(t, err)
		name := filepath.Join(to, f.Name())
		must(t, os.WriteFile(name+".copy", data, 0o600))
		must(t, os.Rename(name+".copy", name))
	}
}

// onDisk opens the journal in a directory until the test ends, or it is closed.
func onDisk(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(Disk(dir), small)
	must(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// TestCopyOfAJournalIsTakenForTheOriginal checks that a journal that was copied, or put back from a copy,
// has another id than the original, and keeps it.
func TestCopyOfAJournalIsTakenForTheOriginal(t *testing.T) {
	k := Key{"job", 1}
	for name, test := range map[string]struct {
		do      func(t *testing.T, dir string) string
		another bool
	}{
		"opened again": {do: func(_ *testing.T, dir string) string { return dir }},
		"renamed": {do: func(t *testing.T, dir string) string {
			must(t, os.Rename(dir, dir+".renamed"))
			return dir + ".renamed"
		}},
		"copied elsewhere": {another: true, do: func(t *testing.T, dir string) string {
			copyFiles(t, dir, dir+".copy")
			return dir + ".copy"
		}},
		"put back from a copy": {another: true, do: func(t *testing.T, dir string) string {
			copyFiles(t, dir, dir+".copy")
			must(t, os.RemoveAll(dir))
			must(t, os.Rename(dir+".copy", dir))
			return dir
		}},
		"files put back from a copy": {another: true, do: func(t *testing.T, dir string) string {
			copyFiles(t, dir, dir+".copy")
			copyFiles(t, dir+".copy", dir)
			return dir
		}},
		"linked elsewhere": {another: true, do: func(t *testing.T, dir string) string {
			files, err := os.ReadDir(dir)
			must(t, err)
			must(t, os.Mkdir(dir+".linked", 0o700))
			for _, f := range files {
				must(t, os.Link(filepath.Join(dir, f.Name()), filepath.Join(dir+".linked", f.Name())))
			}
			return dir + ".linked"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			j := onDisk(t, dir)
			id := j.ID()
			must(t, j.AcceptStart(k, Accept{}, time.Unix(1, 0)))
			must(t, j.Close())
			dir = test.do(t, dir)
			j = onDisk(t, dir)
			now := j.ID()
			if another := now != id; another != test.another || another != (j.CopyOf() == id) || j.State(k) != Started {
				t.Errorf("journal %s is %s now, a copy of %q; the attempt is %s", id, now, j.CopyOf(), j.State(k))
			}
			must(t, j.AcceptStart(Key{"job", 2}, Accept{}, time.Unix(2, 0)))
			must(t, j.Close())
			j = onDisk(t, dir)
			if j.ID() != now || j.CopyOf() != "" || j.State(Key{"job", 2}) != Started {
				t.Errorf("then it is %s, a copy of %q", j.ID(), j.CopyOf())
			}
			must(t, j.Close())
			if r, err := Check(Disk(dir)); err != nil || len(r.Damage) > 0 || r.ID != now || len(r.Held) != 2 {
				t.Errorf("the journal is found to be %+v, %v", r, err)
			}
		})
	}
}

// placeArg is the first argument of a test binary that looks where a file is with no files left.
const placeArg = "place"

func init() { mains[placeArg] = placeWithNoFiles }

// placeWithNoFiles prints what goes wrong.
func placeWithNoFiles(args []string) {
	const limit = 40
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		fmt.Println(err)
		return
	}
	f, err := Disk(args[0]).Create("f")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	want := placeOf(f)
	for fd, err := 0, error(nil); err == nil; fd, err = syscall.Open(os.DevNull, syscall.O_RDONLY, 0) {
		_ = fd // it is closed with the process
	}
	if is := placeOf(f); is != want || is == "" {
		fmt.Printf("with no files it is at %q, else at %q\n", is, want)
	}
}

// TestPlaceOfAJournalWhileFilesHaveRunOut checks that a journal knows where it is while no file is left: a segment that
// does not say it, or a journal that cannot be asked, is not known to be a copy.
func TestPlaceOfAJournalWhileFilesHaveRunOut(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", placeArg, filepath.Join(t.TempDir(), "journal")).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %.300s", err, out)
	}
}

// TestJournalThatDoesNotSayWhereItIs checks that what older software has written is no copy, and says where
// it is as soon as something is written.
func TestJournalThatDoesNotSayWhereItIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	must(t, os.Mkdir(dir, 0o700))
	head := appendEntry(nil, &entry{kind: kindHead, id: "older", number: 1})
	head[entryHead+1+len(magic)+1+len("older")] = oldVersion
	head = append(head[:len(head)-5], endMark) // it ends with the base
	head[0] -= 4
	seal(head, 0)
	must(t, os.WriteFile(filepath.Join(dir, segmentName(1)), head, 0o600))
	j := onDisk(t, dir)
	if j.ID() != "older" || j.CopyOf() != "" {
		t.Errorf("it is %s, a copy of %q", j.ID(), j.CopyOf())
	}
	must(t, j.Close())
	copyFiles(t, dir, dir+".copy")
	j = onDisk(t, dir+".copy")
	if j.ID() == "older" || j.CopyOf() != "older" {
		t.Errorf("its copy is %s, a copy of %q", j.ID(), j.CopyOf())
	}
}
