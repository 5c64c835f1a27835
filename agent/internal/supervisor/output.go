package supervisor

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

const (
	readChunk   = 16 << 10
	writeBuffer = 64 << 10        // bytes of records that are written at once
	drainTime   = 2 * time.Second // how long an output may stay open after the end
	lastError   = 1 << 10
)

// stream is one output of a command.
type stream struct {
	pipe     *os.File
	splitter *splitter
	last     lastLine
	result   collector
}

// plumb makes the pipes of the command, and returns its ends of them.
func (e *engine) plumb(options *proc.Options) (ends []*os.File, err error) {
	for _, kind := range []string{kindStdout, kindStderr} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ends)
			e.unplumb()
			return nil, err
		}
		ends = append(ends, w)
		e.streams = append(e.streams, &stream{
			pipe: r, result: noResult{},
			splitter: newSplitter(kind, e.spec.Records, e.spec.MaxRecord),
		})
	}
	e.streams[0].result = collectorOf(e.spec.Result)
	options.Stdout, options.Stderr = ends[0], ends[1]
	input := e.secrets.fill(e.spec.Stdin)
	if len(input) == 0 {
		return ends, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		closeAll(ends)
		e.unplumb()
		return nil, err
	}
	e.stdin = feeder{pipe: w, input: input}
	options.Stdin = r
	return append(ends, r), nil
}

// unplumb closes this side of the pipes.
func (e *engine) unplumb() {
	for _, s := range e.streams {
		drop(s.pipe)
	}
	e.stdin.stop()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		drop(f)
	}
}

// drop closes what nothing more is wanted of, whatever that says.
func drop(c io.Closer) { _ = c.Close() }

// feeder writes what a command reads.
type feeder struct {
	pipe  *os.File
	input []byte
}

// feed writes until the command has read all of it, or closed its input or ended.
func (f *feeder) feed() {
	if f.pipe != nil {
		_, _ = f.pipe.Write(f.input) // a command need not read it
		drop(f.pipe)
	}
}

// stop ends feed.
func (f *feeder) stop() {
	if f.pipe != nil {
		drop(f.pipe)
	}
}

// read makes records of an output, until it is closed by all who have it, or given up.
func (e *engine) read(s *stream) {
	defer s.pipe.Close()
	buf := make([]byte, readChunk)
	for {
		n, err := s.pipe.Read(buf)
		if n > 0 {
			e.take(s, buf[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && e.drainOn(s) {
			continue
		}
		if err != nil {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	s.splitter.end(func(p piece) { e.putLocked(p, now) })
	e.flushLocked()
}

// take makes records of what was read.
func (e *engine) take(s *stream, b []byte) {
	s.last.write(b)
	s.result.write(b)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.quiet.heard(now, e.pressure.total(now))
	s.splitter.write(b, func(p piece) { e.putLocked(p, now) })
	e.flushLocked()
}

// putLocked appends a record. With a full spool it waits for room, if it shall, or
// drops the record.
func (e *engine) putLocked(p piece, now time.Time) {
	r := Record{Time: now.UnixNano(), Kind: p.kind, Value: p.value, Partial: p.partial}
	for {
		r.Truncated = e.dropped
		full, passes := e.spool.full(recordSize(&r))
		if !full {
			break
		}
		if !e.pressure.on || !passes {
			e.dropped += outputSize(&r)
			return
		}
		e.flushLocked()
		e.waitLocked()
	}
	e.dropped = 0
	if e.spool.add(&r) >= writeBuffer {
		e.flushLocked()
	}
}

// waitLocked waits for a change while the command is held back.
func (e *engine) waitLocked() {
	changed := e.changed
	e.pressure.begin(time.Now())
	e.mu.Unlock()
	<-changed
	e.mu.Lock()
	e.pressure.finish(time.Now())
}

// flushLocked makes records visible.
func (e *engine) flushLocked() {
	had := e.spool.count()
	e.dropped += e.spool.flush()
	if e.spool.count() > had {
		e.announceLocked()
	}
}

// drain bounds how long the outputs may stay open now that the command has ended.
func (e *engine) drain() {
	e.stdin.stop()
	e.mu.Lock()
	now := time.Now()
	e.draining = now.Add(-e.pressure.total(now))
	e.mu.Unlock()
	for _, s := range e.streams {
		_ = s.pipe.SetReadDeadline(now.Add(drainTime)) // fails if it is closed
	}
}

// drainOn reports whether an output may stay open longer, as the time in which it was
// held back does not count. If not it is given up.
func (e *engine) drainOn(s *stream) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	left := drainTime - (now.Sub(e.draining) - e.pressure.total(now))
	if left <= 0 {
		e.open = true
		return false
	}
	return s.pipe.SetReadDeadline(now.Add(left)) == nil
}

// pressure is how long the command was held back.
type pressure struct {
	on      bool // it may be
	waiting int  // streams that are held back now
	since   time.Time
	sum     time.Duration
}

func (p *pressure) begin(now time.Time) {
	if p.waiting == 0 {
		p.since = now
	}
	p.waiting++
}

func (p *pressure) finish(now time.Time) {
	p.waiting--
	if p.waiting == 0 {
		p.sum += now.Sub(p.since)
	}
}

// total is how long it was, up to now.
func (p *pressure) total(now time.Time) time.Duration {
	if p.waiting > 0 {
		return p.sum + now.Sub(p.since)
	}
	return p.sum
}

// quiet is how long nothing was heard of the command.
type quiet struct {
	last time.Time
	held time.Duration // how long it had been held back then
}

func (q *quiet) heard(now time.Time, held time.Duration) { q.last, q.held = now, held }

// since is how long it could have said something.
func (q *quiet) since(now time.Time, held time.Duration) time.Duration {
	return now.Sub(q.last) - (held - q.held)
}
