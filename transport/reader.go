package transport

import "sync"

const (
	smallRead = 256
	largeRead = 16 << 10
)

var readBuffers = sync.Pool{New: func() any { return new([largeRead]byte) }}

// reader reads the stream of a session, ahead of what is asked for: into a few bytes while
// little comes, and into a buffer that all sessions share once those were full.
type reader struct {
	stream Stream
	small  [smallRead]byte
	large  *[largeRead]byte
	rest   []byte // read and not asked for
}

// Read returns what was read ahead, else what there is.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if len(p) >= largeRead {
			return r.stream.Read(p)
		}
		if err := r.fillBuffer(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *reader) fillBuffer() error {
	buf := r.small[:]
	if r.large != nil {
		buf = r.large[:]
	}
	n, err := r.stream.Read(buf)
	if n == 0 {
		return err
	}
	r.rest = buf[:n]
	switch {
	case n == len(buf) && r.large == nil:
		r.large = readBuffers.Get().(*[largeRead]byte)
	case n <= smallRead && r.large != nil:
		copy(r.small[:], r.rest)
		r.rest = r.small[:n]
		r.releaseBuffer()
	}
	return nil
}

// releaseBuffer gives the shared buffer back.
func (r *reader) releaseBuffer() {
	if r.large != nil {
		readBuffers.Put(r.large)
		r.large = nil
	}
}
