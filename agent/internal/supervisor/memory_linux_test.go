package supervisor

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/needs"
)

var supervisorProgram = flag.String("supervisor", selfPath, "the `program` whose supervisor's memory is measured")

// TestMemory checks that a supervisor stays small whatever its command prints. By how much it has outgrown what lives when the collector of a
// machine that is busy comes to it differs from one to the next: of three that follow each other one is small.
func TestMemory(t *testing.T) {
	needs.NoRaceDetector(t)
	const (
		limit  = 12 << 10 // KiB
		output = 50_000_000
	)
	for name, test := range map[string]struct {
		script string
		bytes  int64
	}{
		"short lines": {fmt.Sprintf("yes | head -c %d", output/10), output / 10},
		"long lines":  {fmt.Sprintf("yes $(head -c 900 /dev/zero | tr '\\0' x) | head -c %d", output), output},
		"no lines":    {fmt.Sprintf("head -c %d /dev/zero", output), output},
	} {
		t.Run(name, func(t *testing.T) {
			most := followedMemory(t, test.script, test.bytes)
			for range 2 {
				if most > limit {
					most = min(most, followedMemory(t, test.script, test.bytes))
				}
			}
			if most > limit {
				t.Errorf("a supervisor took %d KiB", most)
			}
		})
	}
}

// followedMemory is how much memory of its own the supervisor of a script takes at most while what that prints is followed, in KiB.
func followedMemory(t *testing.T, script string, bytes int64) (most int64) {
	t.Helper()
	c := spawned(t, Spec{
		Key:     Key{"memory", int64(os.Getpid())},
		Command: proc.Spec{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/bin:/usr/bin"}},
		Records: SplitLines, MaxRecord: 64 << 10, MaxSpool: 64 << 20,
	})
	sum, n := int64(0), int64(0)
	_, err := c.Follow(t.Context(), 0, func(i int64, r Record) error {
		sum += outputSize(&r)
		if n++; n%500 == 0 {
			c.Keep(i + 1)
			most = max(most, rss(t, c, "RssAnon"))
		}
		return nil
	}, func(Stop) {})
	if err != nil || sum != bytes {
		t.Fatalf("%d bytes came, want %d: %v", sum, bytes, err)
	}
	t.Logf("at most %d KiB of its own, %d in all, %d now: %d of its own", most, rss(t, c, "VmHWM"), rss(t, c, "VmRSS"), rss(t, c, "RssAnon"))
	if err := c.Forget(); err != nil {
		t.Error(err)
	}
	_ = c.Close() // nothing was written
	return most
}

// spawned starts a command under a supervisor that is made of a program.
func spawned(t *testing.T, spec Spec) *remote {
	t.Helper()
	spec, err := spec.checked()
	if err != nil {
		t.Fatal(err)
	}
	p, err := placeOf(Options{Dir: t.TempDir()}, spec.Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, child, err := spawn(*supervisorProgram)
	if err != nil {
		t.Fatal(err)
	}
	addChild(child, proc.IdentityOf(child.Pid))
	if _, err := instruct(t.Context(), conn, newHandover(p.root, spec, true), Options{}.commit); err != nil {
		t.Fatal(err)
	}
	c, err := connect(conn, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rss is a figure of a supervisor, in KiB.
func rss(t *testing.T, c *remote, name string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.hello.Supervisor.PID))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), name+":")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReadOnlyOf(t *testing.T) {
	const program = "/usr/bin/my harp"
	for line, want := range map[string]bool{
		"00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/my harp":           true,
		"00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/my harp":           true,
		"00652000-00655000 rw-p 00052000 08:02 173521      /usr/bin/my harp":           false,
		"35b1800000-35b1820000 r-xp 00000000 08:02 135522  /usr/lib64/ld-2.15.so":      false,
		"7fffb2c0d000-7fffb2c2e000 rw-p 00000000 00:00 0   [stack]":                    false,
		"7fffb2d48000-7fffb2d49000 r-xp 00000000 00:00 0":                              false,
		"xyz-00452000 r-xp 00000000 08:02 173521           /usr/bin/my harp":           false,
		"00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/my harp (deleted)": false,
	} {
		if _, size, ok := readOnlyOf(line, program); ok != want || ok && size != 0x52000 && size != 0x1000 {
			t.Errorf("%s: %x, %v", line, size, ok)
		}
	}
}
