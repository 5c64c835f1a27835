package supervisor

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

var update = flag.Bool("update", false, "write the transcript of this version anew")

// transcript is what was said in a session of version 1, which supervisors speak that run
// on when their agent is upgraded. It is never written anew for another version: that gets
// a file of its own, and this one goes when version 1 need not be understood any more.
const transcript = "testdata/session-v1.txt"

// line is what one side said before the other did.
type line struct {
	agent bool
	bytes []byte
}

// goldenEngine is an attempt that is over, and of which everything is known.
func goldenEngine() *engine {
	e := newEngine(Spec{Key: Key{"01JOB", 2}}, newMemory(1<<20), secretDir{}, "")
	e.over = true
	for i := range 6 {
		e.spool.add(testRecord(i, i))
	}
	e.flush()
	e.stopped = &Stop{Cause: causeRunning, Since: 1_700_000_000_000_000_001, Limit: time.Minute}
	e.end = goldenEnd()
	return e
}

func goldenEnd() *End {
	return &End{
		Status: proc.Status{
			Exit: -1, Signal: "SIGKILL", Core: true, Killed: 2, Strays: 1,
			RanFor: time.Minute, CPUTime: time.Second, MaxRSS: 1 << 20,
		},
		Time: 1_700_000_000_000_000_002, Records: 6, Truncated: 7, OutputOpen: true,
		Stopped: &Stop{Cause: causeRunning, Since: 1_700_000_000_000_000_001, Limit: time.Minute},
		Result:  []byte("result\x00\xff"), From: fromStdout, LastError: "oops",
	}
}

func goldenHello(version int) helloMessage {
	return helloMessage{
		Version: version, Key: &Key{"01JOB", 2}, Started: 1_700_000_000_000_000_000,
		Supervisor: proc.Identity{PID: 10, Start: 11, Boot: "boot"},
	}
}

// converse is what an agent says; it checks what it is told.
func converse(t *testing.T, conn net.Conn) {
	t.Helper()
	c, err := connect(conn, place{t.TempDir(), t.TempDir()})
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if want := goldenHello(c.hello.Version); !reflect.DeepEqual(c.hello, want) {
		t.Errorf("the hello is %+v, want %+v", c.hello, want)
	}
	c.Hold(true)
	next, stops := 0, 0
	end, err := c.Follow(t.Context(), 0, func(n int64, r Record) error {
		if want := testRecord(next, next); n != int64(next) || !reflect.DeepEqual(r, *want) {
			t.Errorf("record %d is %d: %+v", next, n, r)
		}
		next++
		return nil
	}, func(s Stop) {
		stops++
		if !reflect.DeepEqual(s, *goldenEnd().Stopped) {
			t.Errorf("the stop is %+v", s)
		}
	})
	if err != nil || next != 6 || stops != 1 || !reflect.DeepEqual(end, *goldenEnd()) {
		t.Errorf("%d records, %d stops, the end is %+v, %v", next, stops, end, err)
	}
	c.Keep(3)
	c.Stop("cancel")
	_, err = c.Follow(t.Context(), 0, func(int64, Record) error { return nil }, func(Stop) {})
	if !errors.Is(err, errKept) {
		t.Errorf("following what was kept elsewhere returned %v", err)
	}
	if err := c.Forget(); err != nil {
		t.Error(err)
	}
}

// tap notes what one side of a connection says.
type tap struct {
	net.Conn
	agent bool
	said  *said
}

// said is what both sides said.
type said struct {
	mu    sync.Mutex
	lines []line
}

func (c tap) Write(b []byte) (int, error) {
	c.said.mu.Lock()
	if n := len(c.said.lines); n > 0 && c.said.lines[n-1].agent == c.agent {
		c.said.lines[n-1].bytes = append(c.said.lines[n-1].bytes, b...)
	} else {
		c.said.lines = append(c.said.lines, line{c.agent, bytes.Clone(b)})
	}
	c.said.mu.Unlock()
	return c.Conn.Write(b)
}

func TestSession(t *testing.T) {
	agentEnd, supervisorEnd := net.Pipe()
	all := &said{}
	s := newSession(goldenEngine(), tap{supervisorEnd, false, all}, goldenHello(protocolVersion), func() error { return nil })
	var serving sync.WaitGroup
	serving.Go(func() { s.serve() })
	converse(t, tap{agentEnd, true, all})
	serving.Wait()
	if *update {
		writeTranscript(t, all.lines)
	}
	if want := readTranscript(t); protocolVersion == 1 && !reflect.DeepEqual(all.lines, want) {
		t.Error("the session is not the one of version 1")
	}
}

// TestOlderSupervisor checks that an agent speaks with a supervisor of version 1.
func TestOlderSupervisor(t *testing.T) {
	agentEnd, supervisorEnd := net.Pipe()
	var playing sync.WaitGroup
	playing.Go(func() {
		defer supervisorEnd.Close()
		in := newFrames(supervisorEnd)
		for _, l := range readTranscript(t) {
			if err := play(l, in, supervisorEnd); err != nil {
				t.Error(err)
				return
			}
		}
	})
	converse(t, agentEnd)
	playing.Wait()
}

// play says what the supervisor said, or hears what the agent says.
func play(l line, in *frames, conn net.Conn) error {
	if !l.agent {
		_, err := conn.Write(l.bytes)
		return err
	}
	for rest := l.bytes; len(rest) > 0; rest = rest[frameLen(rest):] {
		f, err := in.next()
		if err != nil {
			return err
		}
		if f.kind != rest[frameHeader] {
			return errors.New("the agent said " + string(f.kind) + ", in version 1 " + string(rest[frameHeader]))
		}
	}
	return nil
}

// TestOlderAgent checks that a supervisor speaks with an agent of version 1.
func TestOlderAgent(t *testing.T) {
	agentEnd, supervisorEnd := net.Pipe()
	s := newSession(goldenEngine(), supervisorEnd, goldenHello(protocolVersion), func() error { return nil })
	var serving sync.WaitGroup
	serving.Go(func() { s.serve() })
	in := newFrames(agentEnd)
	for _, l := range readTranscript(t) {
		if l.agent {
			if _, err := agentEnd.Write(l.bytes); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for rest := l.bytes; len(rest) > 0; rest = rest[frameLen(rest):] {
			f, err := in.next()
			if err != nil || f.kind != rest[frameHeader] {
				t.Fatalf("the supervisor said %q, in version 1 %q: %v", f.kind, rest[frameHeader], err)
			}
		}
	}
	serving.Wait()
	_ = agentEnd.Close() // nothing was written
}

// TestUpgrade checks that the agent of the next version accepts version 1, and no later
// one does.
func TestUpgrade(t *testing.T) {
	hello := readTranscript(t)[1]
	for version, want := range map[int]error{1: nil, 2: nil, 3: ErrVersion} {
		agentEnd, supervisorEnd := net.Pipe()
		var playing sync.WaitGroup
		playing.Go(func() {
			_, _ = newFrames(supervisorEnd).next()
			_, _ = supervisorEnd.Write(hello.bytes) // the greeting tells
		})
		c := &remote{conn: agentEnd}
		if err := c.greet(newFrames(agentEnd), version); !errors.Is(err, want) {
			t.Errorf("version %d: the error is %v, want %v", version, err, want)
		}
		playing.Wait()
		_ = agentEnd.Close()      // nothing was written
		_ = supervisorEnd.Close() // nothing was written
	}
}

func TestAgree(t *testing.T) {
	for _, test := range []struct{ mine, theirs, want int }{
		{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {3, 2, 2}, {2, 9, 2}, {3, 1, 0}, {1, 0, 0}, {1, -1, 0},
	} {
		got, err := agree(test.mine, test.theirs)
		if got != test.want || (err == nil) != (test.want > 0) || err != nil && !errors.Is(err, ErrVersion) {
			t.Errorf("%d and %d speak %d, %v; want %d", test.mine, test.theirs, got, err, test.want)
		}
	}
}

func readTranscript(t *testing.T) []line {
	t.Helper()
	text, err := os.ReadFile(transcript)
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	for s := range strings.Lines(string(text)) {
		side, digits, _ := strings.Cut(strings.TrimSpace(s), " ")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line{side == "agent", b})
	}
	return lines
}

func writeTranscript(t *testing.T, lines []line) {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		side := "supervisor"
		if l.agent {
			side = "agent"
		}
		b.WriteString(side + " " + hex.EncodeToString(l.bytes) + "\n")
	}
	if err := os.WriteFile(transcript, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// goldenSpool is a spool file of version 1, as lines of an offset and what is there; the
// rest of it is zeros. What holds for the transcript holds for it.
const goldenSpool = "testdata/spool-v1.txt"

// TestOlderSpool checks that what a supervisor of version 1 left can be read.
func TestOlderSpool(t *testing.T) {
	if *update {
		writeSpool(t)
	}
	text, err := os.ReadFile(goldenSpool)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for s := range strings.Lines(string(text)) {
		var at int
		var chunk []byte
		if _, err := fmt.Sscanf(s, "%d %x", &at, &chunk); err != nil {
			t.Fatal(err)
		}
		b = append(append(b, make([]byte, at-len(b))...), chunk...)
	}
	m, err := remade(t, b)
	if err != nil {
		t.Fatal(err)
	}
	want := goldenHello(1)
	if m.Spec.Key != *want.Key || m.Supervisor != want.Supervisor || m.Spec.Grace != time.Minute || m.Cgroup != "/cgroup" || m.Secrets != "/secrets" {
		t.Errorf("the header is %+v", m.header)
	}
	if m.leader.Leader != want.Supervisor || m.leader.Time != want.Started || !reflect.DeepEqual(m.stop, goldenEnd().Stopped) || !reflect.DeepEqual(m.end, goldenEnd()) {
		t.Errorf("the notes are %+v, %+v and %+v", m.leader, m.stop, m.end)
	}
	checkRecords(t, m, 0, 6, 10)
}

// writeSpool writes the spool file of this version anew.
func writeSpool(t *testing.T) {
	t.Helper()
	hello, end := goldenHello(1), goldenEnd()
	f, err := createFile(t.TempDir()+"/spool", header{
		Supervisor: hello.Supervisor, Created: 5, Cgroup: "/cgroup", Secrets: "/secrets",
		Spec: Spec{Key: *hello.Key, Grace: time.Minute, MaxSpool: 1 << 20, Result: Result{From: fromStdout, Max: 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fill(t, f, 0, 6, 10)
	err = errors.Join(f.note(entryStarted, started{hello.Supervisor, hello.Started}, nil), f.note(entryStop, end.Stopped, nil), f.noteEnd(*end))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for at := 0; at < len(b); at += 32 {
		if chunk := b[at:min(at+32, len(b))]; len(bytes.Trim(chunk, "\x00")) > 0 {
			fmt.Fprintf(&text, "%d %x\n", at, chunk)
		}
	}
	if err := os.WriteFile(goldenSpool, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
