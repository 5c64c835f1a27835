//go:build linux

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
)

func tellNoHello(t *teller) error {
	err := t.each(t.many(100, 1000), func(i int) error {
		if i%2 == 0 { // not even a stream
			_, err := t.identified(t.as, "liar")
			return err
		}
		_, err := t.session("liar", nil)
		return err
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellNoMux(t *teller) error {
	texts := [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), bytes.Repeat([]byte{0xff}, 64<<10), bytes.Repeat([]byte{1}, 100),
		{0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
	}
	return t.each(t.many(20, 200), func(i int) error {
		conn, err := t.identified(t.as, "liar")
		if err != nil {
			return err
		}
		_, _ = conn.Write(texts[i%len(texts)]) // it may be closed already
		if i%len(texts) == 3 {
			return nil // it may wait for so many bytes
		}
		return isClosed(conn)
	})
}

func tellOtherMux(t *teller) error {
	for _, message := range [][]byte{
		{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		header(9, 0, 1, 0), header(kindData, 0, 99, 5), header(kindData, flagSYN, 1, 0),
		header(kindWindow, flagSYN, 2, 0), header(kindWindow, 0xffff, 7, 1<<31), header(kindGoAway, 0, 0, 99), header(kindData, flagRST, 1, 0),
		header(kindData, flagFIN, 1, 0), header(kindData, flagSYN|flagACK|flagFIN|flagRST, 3, 0), header(kindData, 0, 0, 1<<31),
	} {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		_ = p.write(message)
		_ = p.write(make([]byte, 1000))
		p.close()
	}
	return nil
}

func tellPings(t *teller) error {
	return t.closing(t.many(5, 50), func(p *peer) {
		for range 1000 {
			if p.write(bytes.Repeat(header(kindPing, flagSYN, 0, 7), 100)) != nil {
				return
			}
		}
	})
}

func tellStreams(t *teller) error {
	return t.closing(t.many(5, 50), func(p *peer) {
		for range 1000 {
			if _, err := p.openStream(); err != nil {
				return
			}
		}
	})
}

// tellHalfMessages fills the window of each session with one message whose last byte never comes.
func tellHalfMessages(t *teller) error {
	const size = 1000 << 10
	half := append(header(kindData, 0, 1, size), make([]byte, size-1)...)
	err := t.each(t.many(640, 2000), func(int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		_ = p.write(half) // it may be closed already
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// tellAhead has a long body let in on each session, and then sends what may be sent of others before they are, and names none. Where
// nothing may be sent before, the session ends.
func tellAhead(t *teller) error {
	err := t.each(t.many(300, 2000), func(int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		s, err := p.openStream()
		if err != nil {
			return err
		}
		body := encode(submission(make([]byte, 20_000)))
		begins := binary.BigEndian.AppendUint32(frameHeader(p.nextExchange(), typeSubmit, endFlag|longFlag, len(body)), s.id)
		if err := p.sayBytes(begins); err != nil {
			return err
		}
		var letIn [1]byte
		if _, err := io.ReadFull(s, letIn[:]); err != nil {
			return err
		}
		if _, err := s.Write(body); err != nil {
			return err
		}
		for sent := 0; sent < 256<<10; sent += pieceSize {
			if s.writePiece(make([]byte, pieceSize)) != nil {
				break
			}
		}
		if letIn[0] == 1 {
			return p.untilClosed(t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellOverrun(t *teller) error {
	body := make([]byte, pieceSize)
	return t.each(t.many(3, 30), func(i int) error {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		s := p.main
		if i%2 == 0 { // one that is not accepted
			if s, err = p.openStream(); err != nil {
				return err
			}
		}
		for range 64 << 20 / pieceSize {
			if s.writePiece(body) != nil {
				break
			}
		}
		return p.untilClosed(t)
	})
}

func tellWindows(t *teller) error {
	return t.greeted(t.many(3, 30), func(p *peer) error {
		for range 1000 {
			if p.write(bytes.Repeat(header(kindWindow, 0, 1, math.MaxUint32), 100)) != nil {
				break
			}
		}
		p.close()
		return nil
	})
}

func tellOtherFirst(t *teller) error {
	for _, kind := range []byte{0, typeCall, typeWelcome, typeFacts, typeReady, typeReply, typeHeartbeat, 100, 255} {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		_ = p.say(0, kind, 0, hello())
		if kind == typeHeartbeat {
			p.close()
			continue
		}
		if err := p.untilClosed(t); err != nil {
			return fmt.Errorf("frame %d: %w", kind, err)
		}
	}
	return nil
}

func tellHelloAgain(t *teller) error {
	again := bytes.Repeat(frameBytes(0, typeHello, 0, encode(hello("software", strings.Repeat("x", 1000)))), 1000)
	err := t.greeted(t.many(3, 30), func(p *peer) error {
		t.flood(p, again, t.many(20, 100))
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// flood sends bytes again and again, as far as the other side takes them.
func (t *teller) flood(p *peer, b []byte, times int) {
	t.work.Go(func() {
		for range times {
			if p.sayBytes(b) != nil {
				return
			}
		}
	})
}

func tellOtherVersion(t *teller) error {
	for _, v := range []any{0, 1, 3, -1, math.MaxInt64, math.MinInt64, "2", nil, 2.5, true} {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		_ = p.say(0, typeHello, 0, object{"v", v})
		if f, err := p.expect(typeUnwelcome); err != nil {
			return fmt.Errorf("version %v: frame %d, %w", v, f.kind, err)
		}
		if err := p.untilClosed(t); err != nil {
			return fmt.Errorf("version %v: %w", v, err)
		}
	}
	return nil
}

func tellHugeHello(t *teller) error {
	text := strings.Repeat("x", 60<<10)
	var features list
	for i := range 4000 {
		features = append(features, fmt.Sprint("feature", i))
	}
	return t.each(t.many(20, 1000), func(i int) error {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		field := []string{"software", "instance", "token", "boot"}[i%4]
		_ = p.say(0, typeHello, 0, hello(field, text))
		_ = p.say(0, typeHello, 0, hello("features", features, "software", "\x1b[2J\u202e\u200b\u2028"))
		return nil
	})
}

// requestsBefore are requests without HELLO, none of which is answered.
func tellRequestsFirst(t *teller) error {
	n := t.many(4, 8)
	err := t.each(n, func(int) error {
		p, err := t.session("liar", nil)
		if err != nil {
			return err
		}
		var b []byte
		for i := range 8000 {
			b = append(b, frameBytes(uint32(i+1), typeJobs, endFlag, encode(object{"limit", 1}))...)
		}
		t.work.Go(func() { _ = p.sayBytes(b) })
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellSessions(t *teller) error {
	var open atomic.Int64
	err := t.each(t.many(100, 3000), func(int) error {
		if _, err := t.callerSession(); err == nil {
			open.Add(1)
		}
		return nil
	})
	if err != nil || open.Load() == 0 {
		return fmt.Errorf("%d sessions: %w", open.Load(), err)
	}
	return t.hold()
}
