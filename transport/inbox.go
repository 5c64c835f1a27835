package transport

import (
	"context"
	"io"
	"sync"
	"time"
)

// What an inbox holds before its reader waits: so many frames, or so many bytes.
const (
	inboxFrames = 16
	inboxBytes  = 256 << 10
)

// inbox holds frames that were read and not yet received. One goroutine puts;
// any may take. Where somebody listens it holds nothing. The zero inbox is empty.
type inbox struct {
	mu     sync.Mutex         // guards what follows; never held while blocked
	ready  chan struct{}      // 1 slot: there may be something to take; nil: nobody has waited
	room   chan struct{}      // 1 slot: there may be room; nil: there always was
	hear   func(Frame, error) // who listens
	frames []Frame
	first  int       // index of the next frame to take
	bytes  int       // in frames
	end    error     // what take returns when the frames are taken
	gone   error     // how the lane ended after the peer's End, for who may yet listen
	full   bool      // put is waiting
	waited time.Time // when it last had
}

// put adds a frame, waiting for room until stop or gone is closed; then the frame
// is dropped, and it returns false. end, if not nil, is what follows the frame.
func (in *inbox) put(f Frame, end error, stop, gone <-chan struct{}) bool {
	for {
		hear, taken := in.place(f, end)
		if hear != nil {
			hear(f, nil)
		}
		if taken {
			return true
		}
		select {
		case <-in.room: // made by place
		case <-stop:
			return false
		case <-gone:
			return false
		}
	}
}

// place takes a frame if there is room, or says who listens to it.
func (in *inbox) place(f Frame, end error) (hear func(Frame, error), taken bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.hear == nil || in.end != nil {
		return nil, in.offerLocked(f, end)
	}
	in.end = end
	return in.hear, true
}

// listen gives the frames to hear, those that are here at once, and then, unless it
// is io.EOF, the end.
func (in *inbox) listen(hear func(Frame, error)) {
	for {
		f, ok, err := in.turn(hear)
		switch {
		case ok:
			hear(f, nil)
			continue
		case err != nil && err != io.EOF: //nolint:errorlint // accept sets it bare
			hear(Frame{}, err)
		}
		return
	}
}

// turn returns what is here. If nothing is, hear hears what comes.
func (in *inbox) turn(hear func(Frame, error)) (f Frame, ok bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	f, ok, err = in.pollLocked()
	if !ok && in.gone != nil {
		err, in.end, in.gone = in.gone, in.gone, nil
	}
	if !ok && (err == nil || err == io.EOF) { //nolint:errorlint // accept sets it bare; after End it hears how the lane ends
		in.hear = hear
	}
	return f, ok, err
}

func (in *inbox) offerLocked(f Frame, end error) bool {
	if in.end != nil {
		return true // closed: dropped
	}
	held := len(in.frames) - in.first
	in.full = held >= inboxFrames || held > 0 && in.bytes+len(f.Body) > inboxBytes
	if in.full {
		if in.room == nil {
			in.room = make(chan struct{}, 1)
		}
		return false
	}
	in.compact()
	in.frames = append(in.frames, f)
	in.bytes += len(f.Body)
	in.end = end
	signal(in.ready)
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
	var hear func(Frame, error)
	switch {
	case in.end == nil || in.end == io.EOF && in.hear != nil: //nolint:errorlint // accept sets it bare
		in.end, hear = err, in.hear
	case in.end == io.EOF: //nolint:errorlint // accept sets it bare
		in.gone = err
	}
	signal(in.ready)
	in.mu.Unlock()
	if hear != nil && err != io.EOF { //nolint:errorlint // accept sets it bare
		hear(Frame{}, err)
	}
}

// abandon drops the frames and lets take return err.
func (in *inbox) abandon(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.frames, in.first, in.bytes, in.end, in.gone, in.hear = nil, 0, 0, err, nil, nil
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
		case <-in.wait():
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// wait returns what is filled when there may be something to take.
func (in *inbox) wait() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ready == nil {
		in.ready = make(chan struct{}, 1)
		in.ready <- struct{}{} // whatever came before there was anything to fill
	}
	return in.ready
}

// poll returns the next frame, if there is one, or the end as an error.
func (in *inbox) poll() (f Frame, ok bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.pollLocked()
}

func (in *inbox) pollLocked() (f Frame, ok bool, err error) {
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
		in.full, in.waited = false, time.Now()
		signal(in.room)
	}
	if in.first < len(in.frames) {
		signal(in.ready)
	}
	return f, true, nil
}

// deaf returns when put last waited for room: now if it does.
func (in *inbox) deaf() time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.full {
		return time.Now()
	}
	return in.waited
}
