package harp

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sentinels are all there are.
var sentinels = []error{
	ErrNotFound, ErrPruned, ErrConflict, ErrInvalid, ErrDenied, ErrRefused, ErrNoSpace, ErrRejected, ErrUnreachable,
	ErrExpired, ErrCancelled, ErrTimeout, ErrLost, ErrUnavailable, ErrClosed, ErrDuplicateHost,
}

// failures is one failure of each code, with the content it has in life.
func failures() map[string]Failure {
	all := map[string]Failure{}
	for _, c := range codes {
		all[c.name] = newFailure(c.name, "the message")
	}
	with := func(code string, change func(*Failure)) {
		f := all[code]
		change(&f)
		all[code] = f
	}
	exit := int64(3)
	with(codeRemote, func(f *Failure) {
		f.Type, f.Data, f.ExitCode, f.Host = "unit_not_found", Value{0x81, 0xa1, 'a', 1}, &exit, "web01"
	})
	with("invalid", func(f *Failure) { f.Field = "args.count" })
	with("rejected_invalid", func(f *Failure) { f.Field = "args.count" })
	with("timeout", func(f *Failure) { f.Limit, f.LimitOf, f.Message = time.Minute, LimitSilenceTimeout, "" })
	with("unreachable", func(f *Failure) { f.Host, f.Stage = "web01", "dial" })
	with("expired_offline", func(f *Failure) { f.Host, f.Stage, f.Type = "web01", "dial", ReasonOffline })
	with("lost", func(f *Failure) { f.Type = LostTooLong })
	with("unavailable", func(f *Failure) { f.JobID, f.Ran = "0198f0a2-7c11-7000-8000-000000000001", MayHaveRun })
	with("cancelled", func(f *Failure) { f.Ran, f.Message = DidNotRun, "" })
	with("internal", func(f *Failure) { f.Fault = FaultAgent })
	all["later"] = Failure{Code: "later", Type: "new", Message: "the message", Ran: DidNotRun, Fault: FaultPolicy}
	return all
}

func encodeFailure(f Failure) []byte { return appendMessage(nil, &f) }

func decodeFailure(t *testing.T, b []byte) (f Failure) {
	t.Helper()
	if err := requests.Decode(b, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// sameError fails unless got is in every way that can be asked what f describes.
func sameError(t *testing.T, got error, f Failure) {
	t.Helper()
	for _, s := range sentinels {
		if is, want := errors.Is(got, s), errors.Is(f.Err(), s); is != want {
			t.Errorf("errors.Is(%v, %v) is %v", got, s, is)
		}
	}
	for _, s := range codeNamed(f.Code).is {
		if !errors.Is(got, s) {
			t.Errorf("%v is not %v", got, s)
		}
	}
	if FaultOf(got) != f.Fault {
		t.Errorf("FaultOf %q, want %q", FaultOf(got), f.Fault)
	}
	if RanOf(got) != f.Ran {
		t.Errorf("RanOf %q, want %q", RanOf(got), f.Ran)
	}
	if back := FailureOf(got); !reflect.DeepEqual(back, f) {
		t.Errorf("FailureOf\n%+v, want\n%+v", back, f)
	}
	sameContent(t, got, f)
}

func sameContent(t *testing.T, got error, f Failure) {
	t.Helper()
	var (
		remote *RemoteError
		field  *FieldError
		limit  *TimeoutError
		host   *HostError
		call   *CallError
	)
	if errors.As(got, &remote) != (f.Code == codeRemote) {
		t.Errorf("%v: *RemoteError", got)
	} else if remote != nil && (remote.Type != f.Type || remote.Message != f.Message || string(remote.Data) != string(f.Data) || *remote.ExitCode != int(*f.ExitCode)) {
		t.Errorf("got %+v", remote)
	}
	if errors.As(got, &field) != (f.Field != "") {
		t.Errorf("%v: *FieldError", got)
	} else if field != nil && *field != (FieldError{f.Field, f.Message}) {
		t.Errorf("got %+v", field)
	}
	if errors.As(got, &limit) != (f.LimitOf != "") {
		t.Errorf("%v: *TimeoutError", got)
	} else if limit != nil && *limit != (TimeoutError{f.Limit, f.LimitOf}) {
		t.Errorf("got %+v", limit)
	}
	if errors.As(got, &host) != (f.Stage != "") {
		t.Errorf("%v: *HostError", got)
	} else if host != nil && (host.Host != f.Host || host.Stage != f.Stage) {
		t.Errorf("got %+v", host)
	}
	if errors.As(got, &call) != (f.JobID != "") {
		t.Errorf("%v: *CallError", got)
	} else if call != nil && call.JobID != f.JobID {
		t.Errorf("got %+v", call)
	}
}

// TestCodes: a failure that is made an error, wrapped, stored, sent and read again
// keeps its identity and its content.
func TestCodes(t *testing.T) {
	for name, f := range failures() {
		t.Run(name, func(t *testing.T) {
			sameError(t, f.Err(), f)
			sameError(t, fmt.Errorf("wrapped: %w", f.Err()), f)
			sameError(t, errors.Join(io.EOF, f.Err()), f)
			sameError(t, decodeFailure(t, encodeFailure(FailureOf(f.Err()))).Err(), f)
			text, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			var read Failure
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			sameError(t, read.Err(), f)
			var fresh failureError
			if line := f.Err().Error(); strings.Contains(line, "\n") || strings.Contains(line, "harp:") || line == fresh.Error() {
				t.Errorf("%q", line)
			}
		})
	}
	if err := (Failure{}).Err(); err != nil {
		t.Error(err)
	}
	if f := FailureOf(nil); !reflect.DeepEqual(f, Failure{}) || FaultOf(nil) != FaultNone || RanOf(nil) != DidRun {
		t.Error(f)
	}
}

// TestFailureGolden: failures lie in stores, so that their bytes are a promise.
func TestFailureGolden(t *testing.T) {
	exit := int64(3)
	f := Failure{
		Code: "remote", Type: "unit_not_found", Message: "nginx.service", Data: Value{0x80}, ExitCode: &exit, Ran: DidRun, Fault: FaultProcedure,
		Host: "web01", Stage: "dial", Field: "args.x", Limit: time.Second, LimitOf: LimitSilenceTimeout, JobID: "j",
	}
	const want = "8da4636f6465a672656d6f7465a474797065ae756e69745f6e6f745f666f756e64a36d7367ad6e67696e782e73657276696365a464617461c40180a46578697403a372616ea3796573a56661756c74a970726f636564757265a4686f7374a57765623031a57374616765a46469616ca56669656c64a6617267732e78a56c696d6974ce3b9aca00a86c696d69745f6f66a774696d656f7574a66a6f625f6964a16a"
	if got := hex.EncodeToString(encodeFailure(f)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCodeTable: each code is there once, its sentinels name it and no other, and
// every sentinel has one.
func TestCodeTable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range codes {
		if seen[c.name] || c.name == "" || c.fault == "" || c.ran == "" {
			t.Errorf("code %+v", c)
		}
		seen[c.name] = true
		if len(c.is) > 0 {
			if got := codeOf(errors.Join(c.is...)); got.name != c.name {
				t.Errorf("the sentinels of %s make %s", c.name, got.name)
			}
		}
	}
	for _, s := range sentinels {
		if f := FailureOf(s); !errors.Is(f.Err(), s) || f.Message != "" {
			t.Errorf("%v became %+v", s, f)
		}
		if f := FailureOf(fmt.Errorf("%w: because", s)); !errors.Is(f.Err(), s) || f.Message != "because" {
			t.Errorf("%v became %+v", s, f)
		}
	}
}

// TestHTTPStatus: every code has a status.
func TestHTTPStatus(t *testing.T) {
	for _, c := range codes {
		got := HTTPStatus(newFailure(c.name, "").Err())
		if (got == 500) != (c.name == codeInternal) || got < 400 || got > 599 {
			t.Errorf("%s: %d", c.name, got)
		}
	}
	for _, c := range []struct {
		err  error
		want int
	}{{nil, 200}, {ErrNotFound, 404}, {&FieldError{}, 400}, {fmt.Errorf("x: %w", context.Canceled), 499}, {io.EOF, 500}, {&RemoteError{}, 502}} {
		if got := HTTPStatus(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestRemoteType: a failure of a procedure is known by its type, here and where it arrives.
func TestRemoteType(t *testing.T) {
	here := fmt.Errorf("x: %w", &RemoteError{Type: "unit_failed"})
	for _, err := range []error{here, FailureOf(here).Err()} {
		if !errors.Is(err, RemoteType("unit_failed")) || errors.Is(err, RemoteType("unit_not_found")) {
			t.Errorf("%v", err)
		}
	}
	for _, err := range []error{ErrNotFound, newFailure("rejected", "").Err(), io.EOF} {
		if errors.Is(err, RemoteType("")) {
			t.Errorf("%v is one of a procedure", err)
		}
	}
}

// TestFailureOf: errors made in Go, not read from anywhere, keep what they are, too.
func TestFailureOf(t *testing.T) {
	exit := 3
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 8, 14, 2), Port: 4306}, Err: errors.New("i/o timeout")}
	for _, c := range []struct {
		name  string
		err   error
		is    []error
		fault Fault
		ran   Ran
		text  string // of what arrives at the other end
	}{
		{"remote", &RemoteError{Type: "t", Message: "m", ExitCode: &exit}, nil, FaultProcedure, DidRun, "t: m"},
		{"remote without type", &RemoteError{Message: "m"}, nil, FaultProcedure, DidRun, "m"},
		{"field", &FieldError{"queue", "no"}, []error{ErrInvalid}, FaultCaller, DidNotRun, "invalid queue: no"},
		{"limit", &TimeoutError{time.Minute, LimitMaxExecTime}, []error{ErrTimeout}, FaultPolicy, DidRun, "ran longer than 1m0s (max_exec_time)"},
		{"silence", &TimeoutError{time.Minute, LimitSilenceTimeout}, []error{ErrTimeout}, FaultPolicy, DidRun, "no record for 1m0s (silence_timeout)"},
		{"not found", notFoundError("host", "web09"), []error{ErrNotFound}, FaultCaller, DidNotRun, "no such host: web09"},
		{"pruned", ErrPruned, []error{ErrPruned}, FaultCaller, MayHaveRun, "pruned"},
		{"host joined", &HostError{"web01", "dial", errors.Join(ErrUnreachable, dial)}, []error{ErrUnreachable}, FaultNetwork, DidNotRun, "web01: unreachable at dial (10.8.14.2:4306: i/o timeout)"},
		{"host bare", &HostError{"web01", "lookup", ErrUnreachable}, []error{ErrUnreachable}, FaultNetwork, DidNotRun, "web01: unreachable at lookup"},
		{"host unknown", &HostError{"web01", "auth", errors.New("it is web02")}, nil, FaultUnknown, MayHaveRun, "web01: failed at auth (it is web02)"},
		{"dispatcher", &HostError{"d:7440", "dial", errors.Join(ErrUnavailable, dial)}, []error{ErrUnavailable}, FaultNetwork, DidNotRun, "d:7440: dispatcher unavailable at dial (10.8.14.2:4306: i/o timeout)"},
		{"denied", &HostError{"d:7440", "auth", errors.Join(ErrDenied, errors.New("bad certificate"))}, []error{ErrDenied}, FaultPolicy, DidNotRun, "d:7440: denied at auth (bad certificate)"},
		{"call", &CallError{"j", &HostError{"d:7440", "read", errors.Join(ErrUnavailable, io.ErrUnexpectedEOF)}}, []error{ErrUnavailable}, FaultNetwork, MayHaveRun, "call may have been accepted as job j: d:7440: dispatcher unavailable at read (unexpected EOF)"},
		{"call, closed", &CallError{"j", ErrClosed}, []error{ErrUnavailable}, FaultNetwork, MayHaveRun, "call may have been accepted as job j: dispatcher unavailable"},
		{"call, denied", &CallError{"j", newFailure("denied", "no").Err()}, []error{ErrUnavailable}, FaultPolicy, MayHaveRun, "call may have been accepted as job j: dispatcher unavailable: no"},
		{"two lines", errors.Join(ErrRefused, errors.New("a"), errors.New("b\nc")), []error{ErrRefused}, FaultPolicy, DidNotRun, "refused by the dispatcher: a; b; c"},
		{"context", context.DeadlineExceeded, nil, FaultCaller, MayHaveRun, "context deadline exceeded"},
		{"cancelled context", fmt.Errorf("waiting: %w", context.Canceled), nil, FaultCaller, MayHaveRun, "waiting: context canceled"},
		{"end of a file", io.EOF, nil, FaultUnknown, MayHaveRun, "EOF"},
		{"system", fmt.Errorf("store: %w", syscall.EIO), nil, FaultUnknown, MayHaveRun, "store: input/output error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if FaultOf(c.err) != c.fault || RanOf(c.err) != c.ran {
				t.Errorf("here: fault %q ran %q", FaultOf(c.err), RanOf(c.err))
			}
			f := decodeFailure(t, encodeFailure(FailureOf(c.err)))
			there := f.Err()
			for _, s := range c.is {
				if !errors.Is(there, s) {
					t.Errorf("%v is not %v", there, s)
				}
			}
			if FaultOf(there) != c.fault || RanOf(there) != c.ran {
				t.Errorf("there: fault %q ran %q", FaultOf(there), RanOf(there))
			}
			if there.Error() != c.text {
				t.Errorf("got %q, want %q", there, c.text)
			}
			if again := FailureOf(there); !reflect.DeepEqual(again, f) {
				t.Errorf("got %+v, want %+v", again, f)
			}
		})
	}
}

// TestErrorText: what a user reads is one line that says what failed, where, whether
// it ran and which job it was.
func TestErrorText(t *testing.T) {
	unreachable := newFailure("unreachable", "10.8.14.2:4306: i/o timeout")
	unreachable.Host, unreachable.Stage = "web01", "dial"
	offline := newFailure("expired_offline", "the host was away")
	offline.Type = ReasonOffline
	lost := newFailure("lost", "")
	lost.Type = LostAgentRestarted
	rejected := newFailure("rejected_not_found", "no such procedure: x")
	window := newFailure("refused", "maintenance window freeze refuses it")
	window.Type = "window"
	connected := newFailure("conflict", "web01 cannot be removed: its agent is connected")
	connected.Type = "host"
	const id = "0198f0a2-7c11-7000-8000-000000000001"
	call := func(id string, err error) error {
		return &callFailedError{procedure: "service.restart", host: "web01", id: id, err: err}
	}
	get := func(err error) error { return &jobError{id: id, err: err} }
	job := Job{id: id}
	for _, c := range []struct {
		err  error
		want string
	}{
		{call(id, unreachable.Err()), "call service.restart on web01: unreachable at dial (10.8.14.2:4306: i/o timeout); did not run; job " + id},
		{call("", &FieldError{"priority", "must be from -100 to 100"}), "call service.restart on web01: invalid priority: must be from -100 to 100; did not run"},
		{call(id, &CallError{id, &HostError{"d:7440", "read", errors.Join(ErrUnavailable, io.ErrUnexpectedEOF)}}), "call service.restart on web01: d:7440: dispatcher unavailable at read (unexpected EOF); may have run; job " + id},
		{call(id, ErrClosed), "call service.restart on web01: closed; did not run; job " + id},
		{&callFailedError{procedure: "p", host: "web*", id: id, isBatch: true, err: ErrClosed}, "call p on web*: closed; did not run; batch " + id},
		{call(id, context.Canceled), "call service.restart on web01: context canceled; may have run; job " + id},
		{get(unreachable.Err()), "web01: unreachable at dial (10.8.14.2:4306: i/o timeout); did not run; job " + id},
		{get(offline.Err()), "unreachable: the host was away (offline); did not run; job " + id},
		{get(&RemoteError{Type: "unit_not_found", Message: "nginx.service"}), "failed (it ran): unit_not_found: nginx.service; job " + id},
		{get(&RemoteError{Type: "exit", Message: "exit code 77: no such unit"}), "failed (it ran): exit code 77: no such unit; job " + id},
		{call("", window.Err()), "call service.restart on web01: refused by the dispatcher: maintenance window freeze refuses it; did not run"},
		{connected.Err(), "conflict: web01 cannot be removed: its agent is connected"},
		{get(lost.Err()), "outcome unknown (agent_restarted); may have run; job " + id},
		{get(rejected.Err()), "rejected by the agent: no such procedure: x; did not run; job " + id},
		{get(newFailure("cancelled", "").Err()), "cancelled; it ran; job " + id},
		{get((&TimeoutError{time.Minute, LimitSilenceTimeout})), "no record for 1m0s (silence_timeout); it ran; job " + id},
		{job.answerErr(notFoundError("job", id)), "no such job: " + id},
		{job.answerErr(context.DeadlineExceeded), "context deadline exceeded; job " + id},
		{newFailure("internal", "").Err(), "failed"},
		{Failure{Code: "later", Message: "m", Type: "t"}.Err(), "later: m (t)"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

// TestAskingSaysNothing: that a job could not be read does not mean that it has not
// run.
func TestAskingSaysNothing(t *testing.T) {
	job := Job{id: NewID()}
	for _, err := range append(sentinels, context.Canceled, notFoundError("job", "x")) {
		asked := job.answerErr(err)
		if RanOf(asked) != MayHaveRun || !errors.Is(asked, err) && !errors.Is(err, ErrNotFound) {
			t.Errorf("%v: %s", asked, RanOf(asked))
		}
		if f := FailureOf(asked); f.Ran != MayHaveRun {
			t.Errorf("%v: %s", asked, f.Ran)
		}
	}
	if job.answerErr(nil) != nil {
		t.Error("no error became one")
	}
}

// TestErrorsOwnTheirData: who gets an error may change what is in it.
func TestErrorsOwnTheirData(t *testing.T) {
	f := Failure{Code: codeRemote, Data: Value{0xc3}}
	err := f.Err()
	f.Data[0] = 0xc2
	var remote *RemoteError
	if !errors.As(err, &remote) || remote.Data[0] != 0xc3 {
		t.Fatal(remote)
	}
	remote.Data[0] = 0xc2
	back := FailureOf(err)
	if back.Data[0] != 0xc3 {
		t.Error("the error was changed from outside")
	}
	back.Data[0] = 0xc2
	if FailureOf(err).Data[0] != 0xc3 {
		t.Error("the error was changed from outside")
	}
}
