package transport

import (
	"context"
	"sync"
)

// What an inbox holds before its reader waits: so many frames, or so many bytes.
const (
	inboxFrames = 16
	inboxBytes  = 256 << 10
)

// inbox holds frames that were read and not yet received. One goroutine puts;
// any may take.
type inbox struct {
	ready chan struct{} // 1 slot: there may be something to take
	room  chan struct{} // 1 slot: there may be room

	mu     sync.Mutex // guards what follows; never held while blocked
	frames []Frame
	first  int   // index of the next frame to take
	bytes  int   // in frames
	end    error // what take returns when the frames are taken
	full   bool  // put is waiting
}

func newInbox() inbox {
	return inbox{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put adds a frame, waiting for room until stop or gone is closed; then the frame
// is dropped. end, if not nil, is what follows the frame.
func (in *inbox) put(f Frame, end error, stop, gone <-chan struct{}) {
	for !in.offer(f, end) {
		select {
		case <-in.room:
		case <-stop:
			return
		case <-gone:
			return
		}
	}
	signal(in.ready)
}

func (in *inbox) offer(f Frame, end error) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.end != nil {
		return true // closed: dropped
	}
	held := len(in.frames) - in.first
	in.full = held >= inboxFrames || held > 0 && in.bytes+len(f.Body) > inboxBytes
	if in.full {
		return false
	}
	in.compact()
	in.frames = append(in.frames, f)
	in.bytes += len(f.Body)
	in.end = end
	return true
}

// compact moves the frames to the front when there is no room behind them.
func (in *inbox) compact() {
	if in.first == 0 || len(in.frames) < cap(in.frames) {
		return
	}
	n := copy(in.frames, in.frames[in.first:])
	clear(in.frames[n:])
	in.frames, in.first = in.frames[:n], 0
}

// close lets take return err once the frames are taken. The first call counts.
func (in *inbox) close(err error) {
	in.mu.Lock()
	if in.end == nil {
		in.end = err
	}
	in.mu.Unlock()
	signal(in.ready)
}

// abandon drops the frames and lets take return err.
func (in *inbox) abandon(err error) {
	in.mu.Lock()
	in.frames, in.first, in.bytes, in.end = nil, 0, 0, err
	in.mu.Unlock()
	signal(in.ready)
	signal(in.room)
}

// take returns the next frame, waiting for it until ctx ends.
func (in *inbox) take(ctx context.Context) (Frame, error) {
	for {
		f, ok, err := in.poll()
		if ok || err != nil {
			return f, err
		}
		select {
		case <-in.ready:
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// poll returns the next frame, if there is one, or the end as an error.
func (in *inbox) poll() (f Frame, ok bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.first == len(in.frames) {
		if in.end != nil {
			signal(in.ready) // for the next who waits
		}
		return Frame{}, false, in.end
	}
	f = in.frames[in.first]
	in.frames[in.first] = Frame{}
	in.first++
	in.bytes -= len(f.Body)
	if in.full {
		in.full = false
		signal(in.room)
	}
	if in.first < len(in.frames) {
		signal(in.ready)
	}
	return f, true, nil
}

// waiting reports whether put waits for room.
func (in *inbox) waiting() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.full
}
