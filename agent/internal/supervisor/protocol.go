package supervisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// The protocol: both sides send a hello, then the agent asks and the supervisor answers,
// neither waiting for the other. Messages are frames. An agent speaks with a supervisor of
// its own version, and with one of the version before, as that is what runs on when
// the agent is upgraded: see agree. A message of an unknown kind is passed over.

// protocolVersion is counted up when a message changes its meaning.
const protocolVersion = 1

// What an agent says.
const (
	sayHello    = 'h'
	sayFollow   = 'f'
	sayUnfollow = 'u'
	sayKeep     = 'k'
	sayHold     = 'o'
	sayStop     = 's'
	sayForget   = 'g'
)

// What a supervisor says.
const (
	tellHello    = 'H'
	tellRecord   = 'R'
	tellStopping = 'P'
	tellEnd      = 'E'
	tellFailed   = 'X' // following
	tellForgot   = 'G'
)

// helloMessage is the first of both sides; of an agent with Version only.
type helloMessage struct {
	Version    int           `json:"version"`
	Key        *Key          `json:"key,omitempty"`
	Supervisor proc.Identity `json:"supervisor,omitzero"`
	Started    int64         `json:"started,omitempty"` // nanoseconds, UTC

	// Of a supervisor that ends with its agent, which has no spool file to say it.
	Leader  proc.Identity `json:"leader,omitzero"`
	Cgroup  string        `json:"cgroup,omitempty"`
	Secrets string        `json:"secrets,omitempty"`
}

type followMessage struct {
	ID   int64 `json:"id"` // counted up by the agent; what is told of it carries it
	From int64 `json:"from,omitempty"`
}

type keepMessage struct {
	Next int64 `json:"next"`
}

type holdMessage struct {
	On bool `json:"on"`
}

type stopMessage struct {
	Cause string `json:"cause"`
	Now   bool   `json:"now,omitempty"` // without a grace
}

type stoppingMessage struct {
	ID   int64 `json:"id"`
	Stop Stop  `json:"stop"`
}

// endMessage is followed by the result's bytes.
type endMessage struct {
	ID  int64 `json:"id"`
	End End   `json:"end"`
}

type failedMessage struct {
	ID int64 `json:"id"`
	problem
}

// agree is the version that two sides speak: the lower. The error is ErrVersion if that
// is more than one before mine.
func agree(mine, theirs int) (int, error) {
	speak := min(mine, theirs)
	if speak < 1 || speak < mine-1 {
		return 0, fmt.Errorf("%w: %d, here it is %d", ErrVersion, theirs, mine)
	}
	return speak, nil
}

// recordFrame is the message of a record.
func recordFrame(b []byte, id, n int64, r *Record) []byte {
	return appendFrame(b, tellRecord, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(id))
		b = binary.AppendUvarint(b, uint64(n))
		return appendRecord(b, r)
	})
}

func decodeRecordFrame(f frame) (id, n int64, r Record, err error) {
	i, width := binary.Uvarint(f.body)
	if width <= 0 {
		return 0, 0, r, errDamaged
	}
	m, more := binary.Uvarint(f.body[width:])
	if more <= 0 {
		return 0, 0, r, errDamaged
	}
	r, err = decodeRecord(f.body[width+more:])
	return int64(i), int64(m), r, err
}

// problem is an error on its way.
type problem struct {
	Code  string        `json:"code"`
	Text  string        `json:"text,omitempty"`
	Stage string        `json:"stage,omitempty"` // of a proc.ExecError
	Errno syscall.Errno `json:"errno,omitempty"`
	First int64         `json:"first,omitempty"` // of a KeptError
}

const codeExec = "exec"

// codes are those of the errors that mean something to who gets them.
var codes = []struct {
	code string
	err  error
}{
	{"replaced", ErrReplaced},
	{"kept", errKept},
	{"damaged", errDamaged},
	{"running", ErrRunning},
	{"exists", ErrExists},
	{"version", ErrVersion},
}

func problemOf(err error) problem {
	p := problem{Text: err.Error()}
	var exec *proc.ExecError
	if errors.As(err, &exec) {
		p.Code, p.Stage, p.Text = codeExec, exec.Stage, exec.Err.Error()
	}
	errors.As(err, &p.Errno)
	var kept *KeptError
	if errors.As(err, &kept) {
		p.First = kept.First
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			p.Code = c.code
		}
	}
	return p
}

// err is what problemOf was given, as far as anyone asks.
func (p problem) err() error {
	var cause error
	if p.Errno != 0 {
		cause = p.Errno
	}
	for _, c := range codes {
		if c.code == p.Code {
			cause = c.err
		}
	}
	if errors.Is(cause, errKept) {
		cause = &KeptError{p.First}
	}
	err := error(&toldError{p.Text, cause})
	if p.Code == codeExec {
		return &proc.ExecError{Stage: p.Stage, Err: err}
	}
	return err
}

// toldError is an error of another process.
type toldError struct {
	text  string
	cause error
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.cause }

// send writes a message.
func send(w io.Writer, kind byte, v any) error {
	b, err := jsonFrame(kind, v, nil)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// receive reads a message of one kind.
func receive(in *frames, kind byte, v any) error {
	f, err := in.next()
	if err != nil {
		return err
	}
	if f.kind != kind {
		return fmt.Errorf("%w: a message of kind %q, not %q", errDamaged, f.kind, kind)
	}
	_, err = f.decode(v)
	return err
}
