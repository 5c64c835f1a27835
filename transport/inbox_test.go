package transport

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// An inbox is full at so many frames or so many bytes, but takes one of any size.
func TestInboxIsBounded(t *testing.T) {
	for _, c := range []struct{ size, frames int }{
		{0, inboxFrames},
		{1000, inboxFrames},
		{100 << 10, 2},
		{inboxBytes, 1},
		{MaxFrame, 1},
	} {
		var in inbox
		for range 3 { // again after it was emptied
			n := 0
			for offered(&in, Frame{Exchange: uint32(n), Body: make([]byte, c.size)}, nil) {
				n++
			}
			if n != c.frames || !in.full {
				t.Errorf("took %d frames of %d bytes", n, c.size)
			}
			for i := range n {
				f, ok, err := in.poll()
				if !ok || err != nil || int(f.Exchange) != i {
					t.Errorf("frame %d is %d, %v, %v", i, f.Exchange, ok, err)
				}
			}
			if in.full {
				t.Error("still full")
			}
		}
		if cap(in.frames) > 2*inboxFrames {
			t.Errorf("grew to %d", cap(in.frames))
		}
	}
}

// While a frame waits for room the peer is not heard, and that is over when there is.
func TestInboxDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		for offered(&in, Frame{}, nil) {
			if !in.deaf().IsZero() {
				t.Fatal("deaf while there is room")
			}
		}
		time.Sleep(time.Second)
		if !in.deaf().Equal(time.Now()) {
			t.Error("not deaf while a frame waits")
		}
		taken := time.Now()
		if _, ok, err := in.poll(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(time.Second)
		if !in.deaf().Equal(taken) {
			t.Errorf("deaf until %v, there was room at %v", in.deaf(), taken)
		}
	})
}

func TestInboxEnd(t *testing.T) {
	var in inbox
	offered(&in, Frame{Exchange: 1}, nil)
	offered(&in, Frame{Exchange: 2}, io.EOF)
	in.close(io.ErrUnexpectedEOF) // too late
	for want := range 2 {
		if f, err := in.take(t.Context()); err != nil || int(f.Exchange) != want+1 {
			t.Errorf("got %d, %v", f.Exchange, err)
		}
	}
	for range 2 {
		if _, err := in.take(t.Context()); err != io.EOF { //nolint:errorlint // the very same
			t.Errorf("at the end: %v", err)
		}
	}
	in.abandon(io.ErrClosedPipe)
	if _, err := in.take(t.Context()); err != io.ErrClosedPipe { //nolint:errorlint // the very same
		t.Errorf("abandoned: %v", err)
	}
}

// Who listens hears how the lane ended after the peer's End, also if that was before it
// listened, or while it heard the End.
func TestInboxEndBeforeListen(t *testing.T) {
	for _, during := range []bool{false, true} {
		var in inbox
		offered(&in, Frame{}, io.EOF)
		if !during {
			in.close(io.ErrUnexpectedEOF)
		}
		var heard []error
		in.listen(func(_ Frame, err error) {
			if heard = append(heard, err); during && err == nil {
				in.close(io.ErrUnexpectedEOF)
			}
		})
		if len(heard) != 2 || heard[0] != nil || heard[1] != io.ErrUnexpectedEOF { //nolint:errorlint // the very same
			t.Errorf("during=%v: heard %v", during, heard)
		}
	}
}

// offered reports whether there was room for a frame.
func offered(in *inbox, f Frame, end error) bool {
	_, taken := in.place(f, end)
	return taken
}
