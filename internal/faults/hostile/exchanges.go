//go:build linux

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

func tellOtherTypes(t *teller) error {
	return t.greeted(t.many(2, 20), func(p *peer) error {
		for _, kind := range []byte{0, typeCall, typeResume, typeAccepted, typeEnd, 31, 41, 63, typeReply, typeFailed, typeChunk, 105, 112, 125} {
			if err := p.refusedWith("refused", kind, object{"id", newID()}); err != nil {
				return err
			}
		}
		_ = p.sayBytes(frameBytes(p.nextExchange(), 200, endFlag, nil))
		return p.untilClosed(t)
	})
}

func tellOtherFlags(t *teller) error {
	for _, flags := range []byte{4, 8, 0x80, 0xff} {
		err := t.closing(1, func(p *peer) { _ = p.sayBytes(frameBytes(1, typePing, flags, nil)) })
		if err != nil {
			return fmt.Errorf("flags %#x: %w", flags, err)
		}
	}
	return nil
}

func tellHugeFrame(t *teller) error {
	return t.closing(t.many(8, 100), func(p *peer) {
		_ = p.sayBytes(frameHeader(p.nextExchange(), typeSubmit, endFlag, math.MaxUint32))
	})
}

// submitSize is nearly the longest SUBMIT there may be.
const submitSize = 2 << 20

func tellHalfBodies(t *teller) error {
	half := make([]byte, submitSize-1)
	err := t.greeted(t.many(2, 16), func(p *peer) error {
		for range 64 {
			s, err := p.openStream()
			if err != nil {
				return err
			}
			named := frameHeader(p.nextExchange(), typeSubmit, endFlag|longFlag, submitSize)
			if err := p.sayBytes(binary.BigEndian.AppendUint32(named, s.id)); err != nil {
				return err
			}
			t.work.Go(func() { _, _ = s.Write(half) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellHalfFrames(t *teller) error {
	half := make([]byte, submitSize-1)
	err := t.greeted(t.many(16, 500), func(p *peer) error {
		t.work.Go(func() {
			if p.sayBytes(frameHeader(p.nextExchange(), typeSubmit, endFlag, submitSize)) == nil {
				_ = p.sayBytes(half)
			}
		})
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellNoStream(t *teller) error {
	ids := []uint32{0, 1, 2, 999, math.MaxUint32}
	err := t.each(t.many(1, 20)*len(ids), func(i int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		named := frameHeader(p.nextExchange(), typeSubmit, endFlag|longFlag, submitSize)
		return p.sayBytes(binary.BigEndian.AppendUint32(named, ids[i%len(ids)]))
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// tellExchanges begins more than there may be at a time, which are never answered.
func tellExchanges(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	return t.closing(t.many(1, 8), func(p *peer) {
		question := encode(object{"id", job, "wait", true})
		for p.sayBytes(frameBytes(p.nextExchange(), typeResult, endFlag, question)) == nil {
			continue
		}
	})
}

// waitingJob submits one that waits for long.
func (t *teller) waitingJob() (string, error) {
	p, err := t.callerSession()
	if err != nil {
		return "", err
	}
	defer p.close()
	id := newID()
	f, err := p.ask(typeSubmit, submission(t.waitingCall(id, object{})))
	if err == nil && f.kind != typeReply {
		err = fmt.Errorf("a call is refused: %s", codeOf(f))
	}
	return id, err
}

func tellResets(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	question := encode(object{"id", job, "wait", true})
	return t.greeted(t.many(2, 16), func(p *peer) error {
		defer p.close()
		for range t.many(20, 500) {
			var b []byte
			for range 500 {
				x := p.nextExchange()
				b = append(b, frameBytes(x, typeResult, endFlag, question)...)
				b = append(b, frameBytes(x, typeReset, 0, nil)...)
			}
			if err := p.sayBytes(b); err != nil {
				return err
			}
		}
		return nil
	})
}

// tellGivenUp asks and does not wait for the answers, each time a little longer.
func tellGivenUp(t *teller) error {
	if err := t.fillStore(50, 1<<10); err != nil {
		return err
	}
	return t.greeted(t.many(2, 16), func(p *peer) error {
		defer p.close()
		for i := range t.many(300, 2000) {
			x := p.nextExchange()
			if err := p.sayBytes(frameBytes(x, typeJobs, endFlag, encode(object{"limit", 50}))); err != nil {
				return err
			}
			time.Sleep(time.Duration(i%40) * 50 * time.Microsecond)
			if err := p.sayBytes(frameBytes(x, typeReset, 0, nil)); err != nil {
				return err
			}
		}
		return nil
	})
}

func tellBackwards(t *teller) error {
	return t.greeted(t.many(4, 40), func(p *peer) error {
		for _, x := range []uint32{5, 4, 3, 5, 1 << 30, 1 << 31, 1<<31 + 5, 3 << 30, math.MaxUint32, 1, 0} {
			_ = p.sayBytes(frameBytes(x, typePing, endFlag, nil))
		}
		p.close()
		return nil
	})
}

func tellAfterEnd(t *teller) error {
	job, err := t.waitingJob()
	if err != nil {
		return err
	}
	question := encode(object{"id", job, "wait", true})
	return t.closing(t.many(4, 40), func(p *peer) {
		for range 3 {
			_ = p.sayBytes(frameBytes(1, typeResult, endFlag, question))
		}
	})
}

func tellHeartbeats(t *teller) error {
	beats := bytes.Repeat(frameBytes(0, typeHeartbeat, 0, nil), 10000)
	return t.greeted(t.many(2, 8), func(p *peer) error {
		defer p.close()
		for range t.many(20, 500) {
			if err := p.sayBytes(beats); err != nil {
				return err
			}
		}
		return nil
	})
}

// bombs are messages that claim to be long, or are deep, or are none.
var bombs = [][]byte{
	{0xdd, 0x7f, 0xff, 0xff, 0xff},
	{0xdf, 0x7f, 0xff, 0xff, 0xff},
	{0xdb, 0x7f, 0xff, 0xff, 0xff},
	{0xc6, 0x7f, 0xff, 0xff, 0xff},
	{0xc9, 0x7f, 0xff, 0xff, 0xff, 0x01},
	{0xdc, 0xff, 0xff},
	bytes.Repeat([]byte{0x91}, 60000), bytes.Repeat([]byte{0x81, 0xa1, 0x61}, 20000),
	{0xc0, 0xc0},
	{0xc1},
	{0xa1, 0xff},
	{0xd6, 0xff, 0, 0, 0, 0},
	{0x92, 0xc0},
	{0x81, 0xc0},
	{0xc7, 0, 0x53},
	encode(object{"id", append(list(nil), make(list, 5000)...)}),
}

func tellBombs(t *teller) error {
	kinds := []byte{typePing, typeSubmit, typeStatus, typePull, typeJobs, typeEvents, typeChange, typePrune}
	return t.each(len(bombs)*t.many(1, len(kinds)), func(i int) error {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		_ = p.sayBytes(frameBytes(p.nextExchange(), kinds[i/len(bombs)], endFlag, bombs[i%len(bombs)]))
		return p.untilClosed(t)
	})
}
