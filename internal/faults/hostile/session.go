//go:build linux

package hostile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// The types of frames (docs/protocol.md, 3).
const (
	typeCall       = 1
	typeResume     = 2
	typeAck        = 3
	typeCancel     = 4
	typeAccepted   = 8
	typeRefused    = 9
	typeNotNow     = 10
	typeStarted    = 11
	typeRecords    = 12
	typeStopping   = 13
	typeEnd        = 14
	typeHello      = 32
	typeWelcome    = 33
	typeUnwelcome  = 34
	typeFacts      = 35
	typeProcedures = 36
	typeHeld       = 37
	typeForget     = 38
	typeReady      = 39
	typeBeat       = 40
	typeReply      = 64
	typeFailed     = 65
	typePing       = 66
	typeSubmit     = 67
	typeStatus     = 68
	typeResult     = 69
	typePull       = 70
	typeCancelJob  = 71
	typeJobs       = 72
	typeHosts      = 73
	typeHostProcs  = 74
	typeRefresh    = 75
	typeQueues     = 76
	typeCancelLine = 77
	typeRequest    = 78
	typeForceLost  = 79
	typeEvents     = 80
	typeChange     = 81
	typePrune      = 82
	typeBackup     = 83
	typeChunk      = 84

	typeExplain            = 85
	typePreview            = 86
	typeGroups             = 87
	typePutGroup           = 88
	typeDeleteGroup        = 89
	typeLabelHosts         = 90
	typeResults            = 91
	typeRemoveHost         = 92
	typeBatch              = 93
	typeBatches            = 94
	typeBatchPull          = 95
	typeChangeBatch        = 96
	typeSchedules          = 97
	typePutSchedule        = 98
	typeDeleteSchedule     = 99
	typeChangeSchedule     = 100
	typeTrigger            = 101
	typeBackfill           = 102
	typeNextTimes          = 103
	typeLedger             = 104
	typeRetentionRules     = 106
	typeSetRetention       = 107
	typeDeleteRetention    = 108
	typeDrift              = 109
	typePingHosts          = 110
	typeForgetDrift        = 111
	typeWindows            = 113
	typePutWindow          = 114
	typeDeleteWindow       = 115
	typeEndWindow          = 116
	typeWindowSpans        = 117
	typeJudgeStart         = 118
	typePauseHosts         = 119
	typeApply              = 120
	typeNotifications      = 121
	typePutNotification    = 122
	typeDeleteNotification = 123
	typeChangeNotification = 124

	typeReset     = 126
	typeHeartbeat = 127

	endFlag  = 1 // the last frame of its exchange
	longFlag = 2 // the body comes on another stream

	version = 2
)

// frame is one that came.
type frame struct {
	exchange uint32
	kind     byte
	end      bool
	body     []byte
}

// peer is a session of a liar.
type peer struct {
	*link
	main *stream

	// handle gets every frame nobody waits for. It may send, but not wait for what comes.
	handle func(frame)

	grantless atomic.Bool // long bodies are not let in, and their frames count as come

	mu      sync.Mutex // guards what follows
	last    uint32     // exchange
	waiting map[uint32]chan frame
	greeted chan frame    // frames of the control exchange, some of them
	over    chan struct{} // closed at the end of the session
}

// newPeer makes a session of a connection.
func newPeer(l *link, handle func(frame)) *peer {
	return &peer{link: l, handle: handle, waiting: map[uint32]chan frame{}, greeted: make(chan frame, 64), over: make(chan struct{})}
}

// frameLoop reads frames until the session ends.
func (p *peer) frameLoop() {
	defer close(p.over)
	in := bufio.NewReader(p.main)
	for {
		f, err := p.readFrame(in)
		if err != nil {
			return
		}
		p.deliver(f)
	}
}

func (p *peer) readFrame(in io.Reader) (f frame, err error) {
	var h [10]byte
	if _, err := io.ReadFull(in, h[:]); err != nil {
		return f, err
	}
	f = frame{exchange: binary.BigEndian.Uint32(h[4:]), kind: h[8], end: h[9]&endFlag != 0}
	f.body = make([]byte, binary.BigEndian.Uint32(h[:]))
	if h[9]&longFlag != 0 {
		var on [4]byte
		if _, err := io.ReadFull(in, on[:]); err != nil {
			return f, err
		}
		s, err := p.awaitStream(binary.BigEndian.Uint32(on[:]))
		if err != nil {
			return f, err
		}
		if p.grantless.Load() {
			return f, nil
		}
		if _, err := s.Write([]byte{1}); err != nil { // lets the body come
			return f, err
		}
		in = s
	}
	_, err = io.ReadFull(in, f.body)
	return f, err
}

// deliver gives a frame to whoever waits for it.
func (p *peer) deliver(f frame) {
	p.mu.Lock()
	answer, waited := p.waiting[f.exchange]
	p.mu.Unlock()
	switch {
	case waited:
		select {
		case answer <- f:
		default:
		}
	case f.exchange == 0 && f.kind != typeHeartbeat:
		select {
		case p.greeted <- f:
		default:
		}
		fallthrough
	default:
		if p.handle != nil {
			p.handle(f)
		}
	}
}

// frameBytes is a frame as it is sent.
func frameBytes(exchange uint32, kind, flags byte, body []byte) []byte {
	return append(frameHeader(exchange, kind, flags, len(body)), body...)
}

// frameHeader is the header of a frame, whose body may or may not come.
func frameHeader(exchange uint32, kind, flags byte, size int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(size))
	b = binary.BigEndian.AppendUint32(b, exchange)
	return append(b, kind, flags)
}

// say sends a frame.
func (p *peer) say(exchange uint32, kind, flags byte, message any) error {
	_, err := p.main.Write(frameBytes(exchange, kind, flags, encode(message)))
	return err
}

// sayBytes sends bytes in the stream of frames.
func (p *peer) sayBytes(b []byte) error {
	_, err := p.main.Write(b)
	return err
}

// nextExchange numbers an exchange.
func (p *peer) nextExchange() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// errGone is the end of a session where an answer was expected.
var errGone = errors.New("the session ended")

// ask sends a request and waits for the answer's last frame.
func (p *peer) ask(kind byte, message any) (frame, error) { return p.askWith(kind, endFlag, message) }

// askWith is ask with flags of the request's frame.
func (p *peer) askWith(kind, flags byte, message any) (frame, error) {
	x := p.nextExchange()
	answer := make(chan frame, 16)
	p.mu.Lock()
	p.waiting[x] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, x)
	}()
	if err := p.say(x, kind, flags, message); err != nil {
		return frame{}, err
	}
	for {
		select {
		case f := <-answer:
			if f.end {
				return f, nil
			}
		case <-p.over:
			return frame{}, errGone
		}
	}
}

// expect waits for a frame of the control exchange.
func (p *peer) expect(kind byte) (frame, error) {
	var f frame
	select {
	case f = <-p.greeted:
	case <-p.over:
		select {
		case f = <-p.greeted: // the last that came
		default:
			return f, errGone
		}
	}
	if f.kind != kind {
		return f, fmt.Errorf("frame %d came instead of %d: %v", f.kind, kind, fields(f.body))
	}
	return f, nil
}

// refusedWith fails unless a request is refused with a code.
func (p *peer) refusedWith(code string, kind byte, message any) error {
	f, err := p.ask(kind, message)
	if err != nil {
		return err
	}
	if got := codeOf(f); got != code {
		return fmt.Errorf("request %d is answered by frame %d, %q, not by %q: %.200q", kind, f.kind, got, code, f.body)
	}
	return nil
}

// codeOf is the code of the failure that a frame holds, "" without one.
func codeOf(f frame) string {
	failure, _ := fields(f.body)["failure"].(map[string]any)
	code, _ := failure["code"].(string)
	return code
}
