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
	mostInPipe  = 1 << 20         // bytes that a pipe takes, however large it was made
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
			e.addOutput(s, buf[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if e.drainOn(s) {
				continue
			}
			e.giveUp(s, buf)
		}
		if err != nil {
			break
		}
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	now := time.Now()
	s.splitter.end(func(p piece) { e.put(p, now) })
	e.flush()
}

// addOutput makes records of what was read.
func (e *engine) addOutput(s *stream, b []byte) {
	s.last.write(b)
	s.result.write(b)
	e.writing.Lock()
	defer e.writing.Unlock()
	now := time.Now()
	e.heard(now)
	s.splitter.write(b, func(p piece) { e.put(p, now) })
	e.flush()
}

func (e *engine) heard(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quiet.heard(now, e.pressure.total(now))
}

// put appends a record. With a full spool it waits for room, if it shall, or drops the
// record. The caller has writing.
func (e *engine) put(p piece, now time.Time) {
	r := Record{Time: now.UnixNano(), Kind: p.kind, Value: p.value, Partial: p.partial}
	for {
		r.Truncated = e.dropped
		waits, changed := e.waits() // first: what is kept from now on is a change
		full, passes := e.spool.full(recordSize(&r))
		if !full {
			break
		}
		if !waits || !passes {
			e.dropped += outputSize(&r)
			return
		}
		e.flush()
		e.wait(changed)
	}
	e.dropped = 0
	if e.spool.add(&r) >= writeBuffer {
		e.flush()
	}
}

// waits reports whether a full spool holds the command back, until the next change.
func (e *engine) waits() (on bool, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pressure.on, e.changed
}

// wait waits for a change while the command is held back, and gives up writing meanwhile.
func (e *engine) wait(changed <-chan struct{}) {
	e.holdBack(true)
	e.writing.Unlock()
	<-changed
	e.writing.Lock()
	e.holdBack(false)
}

// holdBack notes that a stream is held back, or no longer.
func (e *engine) holdBack(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if on {
		e.pressure.begin(time.Now())
	} else {
		e.pressure.finish(time.Now())
	}
}

// flush makes records visible. As long as the disk stands still, the command is held back.
// The caller has writing.
func (e *engine) flush() {
	e.holdBack(true)
	e.dropped += e.spool.flush()
	e.holdBack(false)
	records := e.spool.count()
	e.mu.Lock()
	defer e.mu.Unlock()
	if records > e.records {
		e.records = records
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
	return left > 0 && s.pipe.SetReadDeadline(now.Add(left)) == nil
}

// giveUp takes what an output has that nobody waits for any more, and notes whether it is still
// open: this process, or its disk, may have stood still while it could be read.
func (e *engine) giveUp(s *stream, buf []byte) {
	for taken := 0; taken < mostInPipe; {
		n, err := readNow(s.pipe, buf)
		if n == 0 && err == nil {
			return
		}
		if err != nil {
			break
		}
		e.addOutput(s, buf[:n])
		taken += n
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = true
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
