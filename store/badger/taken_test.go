//go:build linux && !race

package badger_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/internal/rows"
)

// TestCommitsOnATakenDisk has another take all that is free between two commits. Those
// that follow go to blocks that the logs have, until they are refused; cancels go on
// from the ballast; and with space again all does, with the store open all the time.
func TestCommitsOnATakenDisk(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dir := disk{"tmpfs", 400}.mount(t)
	f := &fullDisk{t: t, dir: dir, load: recordsLoad, jobs: map[string]*told{}}
	f.open()
	var waiting []*store.Job
	for range 200 {
		waiting = append(waiting, submit(t, f.st, "away"))
	}
	j, err := f.submit()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := f.append(j); err != nil {
			t.Fatal(err)
		}
	}
	rest := takeRest(t, dir)
	n := 0
	for ; err == nil; n++ {
		err = f.append(j)
	}
	if !errors.Is(err, harp.ErrNoSpace) {
		t.Fatalf("record %d on a disk without a byte: %v", n, err)
	}
	for _, j := range waiting {
		f.cancel(j)
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); err != nil; {
		if err = f.append(j); err != nil && time.Now().After(deadline) {
			t.Fatalf("records after there is space: %v", err)
		}
	}
	f.check()
	f.close()
	f.open()
	f.check()
	f.close()
}

// TestCompactWhatOverlapsAll compacts a few rows that lie before, among and behind all
// others, which all have to be written again for them, with room for a part of those.
func TestCompactWhatOverlapsAll(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dir := disk{"tmpfs", 700}.mount(t)
	e := openEngine(t, filepath.Join(dir, "store"))
	row := func(i int) rows.Write {
		return rows.Write{Key: fmt.Appendf(nil, "%08d", i), Value: bytes.Repeat([]byte{byte(i)}, 3<<10)}
	}
	const many = 40_000
	for i := 0; i < many; i += 500 {
		var writes []rows.Write
		for n := range 500 {
			writes = append(writes, row(2*(i+n)))
		}
		commit(t, e, writes...)
	}
	compact(t, e)
	for round := range 3 {
		commit(t, e, row(1), row(many+1), row(2*many+1))
		rest := takeRest(t, dir)
		leave := int64([]int{40, 70, 100}[round])
		info, err := os.Stat(rest)
		if err == nil {
			err = os.Truncate(rest, info.Size()-leave<<20)
		}
		if err != nil {
			t.Fatal(err)
		}
		compact(t, e)
		if err := os.Remove(rest); err != nil {
			t.Fatal(err)
		}
		compact(t, e)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func compact(t *testing.T, e rows.Engine) {
	t.Helper()
	if err := e.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOpenOnATakenDisk has another take all that is free while a process works as fast as
// it can. Where badger was writing a table that kills it. The store then opens on the disk as
// it is, without what is left of that table, and all that was acknowledged is there.
func TestOpenOnATakenDisk(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	mount := disk{"tmpfs", 512}.mount(t)
	dir := filepath.Join(mount, "store")
	jobs := map[string]*acked{}
	for round := range 3 {
		rest := workUntilTaken(t, mount, dir, jobs, 4000+3000*round)
		leaveOrphan(t, dir)
		checkAcked(t, dir, jobs)
		if err := os.Remove(rest); err != nil {
			t.Fatal(err)
		}
		checkAcked(t, dir, jobs)
		dropEnded(t, dir, jobs)
	}
	t.Logf("%d jobs", len(jobs))
}

// workUntilTaken runs a child and takes the rest of its disk after so many lines.
func workUntilTaken(t *testing.T, mount, dir string, jobs map[string]*acked, lines int) (rest string) {
	t.Helper()
	workUntil(t, dir, jobs, lines, func() { rest = takeRest(t, mount) })
	return rest
}

// workUntil runs a child, calls f after so many lines, and reads what it acknowledged until it
// ends or is killed. It returns how the child says it failed.
func workUntil(t *testing.T, dir string, jobs map[string]*acked, lines int, f func()) (failed []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for in := bufio.NewScanner(out); in.Scan(); n++ {
		if n == lines {
			f()
		}
		word := strings.Fields(in.Text())
		switch word[0] {
		case "submitted":
			jobs[word[1]] = &acked{no: word[2]}
		case "recorded":
			if jobs[word[1]].records, err = strconv.Atoi(word[2]); err != nil {
				t.Fatal(err)
			}
		case "ended":
			jobs[word[1]].ended = true
		case "failed", "poisoned", "filter":
			failed = append(failed, in.Text())
		}
	}
	t.Logf("after %d lines: %v", n, cmd.Wait())
	if n <= lines {
		t.Fatalf("it ended too early: %v", failed)
	}
	return failed
}

// leaveOrphan makes what is left of a table that was being written.
func leaveOrphan(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "900000.sst")
	if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, 1<<20)); err != nil {
		t.Fatal(err)
	}
}

// dropEnded prunes what has ended, acknowledged or not, so that there is room for another
// round.
func dropEnded(t *testing.T, dir string, jobs map[string]*acked) {
	t.Helper()
	st := open(t, dir, badger.Options{})
	defer st.Close()
	for more := true; more; {
		did, err := st.Prune(t.Context(), store.Retention{EndedBefore: time.Now()}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		more = did.More
	}
	if err := st.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id := range jobs {
		if _, err := st.Job(t.Context(), id); errors.Is(err, harp.ErrPruned) {
			delete(jobs, id)
		}
	}
}
