package harp

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp/internal/msgpack"
)

// spy is a Service that takes submissions and has nothing else.
type spy struct {
	Service
	submitted []Submission
}

func (s *spy) Submit(_ context.Context, calls []Submission) (done []Submitted, err error) {
	s.submitted = append(s.submitted, calls...)
	for _, call := range calls {
		req, err := DecodeRequest(call.Request)
		done = append(done, Submitted{ID: req.ID, Err: err})
	}
	return done, nil
}

// request returns the last one.
func (s *spy) request(t testing.TB) Request {
	t.Helper()
	req, err := DecodeRequest(s.submitted[len(s.submitted)-1].Request)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// resolve returns what options make of a request.
func resolve(t testing.TB, opts ...Option) Request {
	t.Helper()
	r, err := NewRequest("web01", "service.restart", nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOptionsStack: options go from Caller to Host to call; the last wins, and
// labels add up.
func TestOptionsStack(t *testing.T) {
	s := &spy{}
	caller := NewCaller(s).With(SilenceTimeout(time.Second), Priority(1), Label("a", "caller"), Label("b", "caller"), Queue(Args{"q": 1}))
	host := caller.Host("web01", Priority(2), Label("b", "host"), MaxExecTime(time.Hour))
	if _, err := host.Call(t.Context(), "p", nil, Priority(3), Label("c", "call"), Options(CallOptions{MaxExecTime: time.Minute, Labels: map[string]string{"d": "struct"}})); err != nil {
		t.Fatal(err)
	}
	first := s.request(t)
	want := map[string]string{"a": "caller", "b": "host", "c": "call", "d": "struct"}
	if first.Priority != 3 || first.SilenceTimeout != time.Second || first.MaxExecTime != time.Minute || !reflect.DeepEqual(first.Labels, want) || first.Queue.String() != `{"q":1}` {
		t.Errorf("got %+v", first)
	}
	if _, err := host.Call(t.Context(), "p", nil); err != nil {
		t.Fatal(err)
	}
	if second := s.request(t); second.Priority != 2 || len(second.Labels) != 2 || second.ID == first.ID {
		t.Errorf("the options of one call stuck: %+v", second)
	}
	if _, err := caller.Host("web01").Call(t.Context(), "p", nil); err != nil {
		t.Fatal(err)
	}
	if third := s.request(t); third.Priority != 1 || third.Labels["b"] != "caller" {
		t.Errorf("the options of the host stuck: %+v", third)
	}
}

// TestOptions: each option sets its field, as does the struct form of it, and the
// struct sets nothing else.
func TestOptions(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)
	id := NewID()
	base := []Option{JobID(id)}
	for _, c := range []struct {
		name  string
		opt   Option
		given CallOptions
		want  func(*Request)
	}{
		{"queue", Queue(Args{"b": 1.0, "a": 2}), CallOptions{Queue: map[string]int{"a": 2, "b": 1}}, func(r *Request) { r.Queue = mustValue(t, Args{"a": 2, "b": 1}) }},
		{"empty queue", Queue(Args{}), CallOptions{Queue: struct{}{}}, func(r *Request) { r.Queue = Value{0x80} }},
		{"no queue", Queue(nil), CallOptions{}, func(*Request) {}},
		{"concurrency", Concurrency(3), CallOptions{Concurrency: 3}, func(r *Request) { r.Concurrency = 3 }},
		{"priority", Priority(-100), CallOptions{Priority: -100}, func(r *Request) { r.Priority = -100 }},
		{"timeout", SilenceTimeout(NoLimit), CallOptions{SilenceTimeout: NoLimit}, func(r *Request) { r.SilenceTimeout = NoLimit }},
		{"max exec time", MaxExecTime(1), CallOptions{MaxExecTime: 1}, func(r *Request) { r.MaxExecTime = 1 }},
		{"start after", StartAfter(at), CallOptions{StartAfter: at}, func(r *Request) { r.StartAfter = at }},
		{"start before", StartBefore(at), CallOptions{StartBefore: at}, func(r *Request) { r.StartBefore = at }},
		{"offline wait", OfflineWait(NoLimit), CallOptions{OfflineWait: NoLimit}, func(r *Request) { r.OfflineWait = NoLimit }},
		{"when offline", WhenOffline(FailFast), CallOptions{WhenOffline: FailFast}, func(r *Request) { r.WhenOffline = FailFast }},
		{"info", Info([]int{1}), CallOptions{Info: []any{1}}, func(r *Request) { r.Info = Value{0x91, 1} }},
		{"retry", Retry(RetryPolicy{On: []State{StateLost}, Attempts: 2}), CallOptions{Retry: RetryPolicy{On: []State{StateLost}, Attempts: 2}}, func(r *Request) { r.Retry = RetryPolicy{On: []State{StateLost}, Attempts: 2} }},
		{"never again", Retry(RetryPolicy{Attempts: 1}), CallOptions{Retry: RetryPolicy{Attempts: 1}}, func(r *Request) { r.Retry.Attempts = 1 }},
		{"idempotency key", IdempotencyKey("k", time.Minute), CallOptions{IdempotencyKey: "k", IdempotencyTTL: time.Minute}, func(r *Request) { r.IdempotencyKey, r.IdempotencyTTL = "k", time.Minute }},
		{"label", Label("k", "v"), CallOptions{Labels: map[string]string{"k": "v"}}, func(r *Request) { r.Labels = map[string]string{"k": "v"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := resolve(t, base...)
			c.want(&want)
			if got := resolve(t, append(base, c.opt)...); !reflect.DeepEqual(got, want) {
				t.Errorf("option: got %+v, want %+v", got, want)
			}
			if got := resolve(t, append(base, Options(c.given))...); !reflect.DeepEqual(got, want) {
				t.Errorf("struct: got %+v, want %+v", got, want)
			}
			if got := resolve(t, append(base, c.opt, Options(CallOptions{}))...); !reflect.DeepEqual(got, want) {
				t.Errorf("the zero struct changed it: got %+v, want %+v", got, want)
			}
		})
	}
	if got := resolve(t, Options(CallOptions{JobID: id})); got.ID != id {
		t.Error(got.ID)
	}
}

// TestOptionsShareNothing: a map that was given may be changed afterwards.
func TestOptionsShareNothing(t *testing.T) {
	labels := map[string]string{"k": "v"}
	opt := Options(CallOptions{Labels: labels})
	first := resolve(t, opt)
	labels["k"] = "w"
	if first.Labels["k"] != "v" {
		t.Error("the request shares memory with what was given")
	}
}

// TestInvalid: everything that is wrong is ErrInvalid, which names it, and nothing
// is sent.
func TestInvalid(t *testing.T) {
	big := func(n int) string { return strings.Repeat("x", n) }
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[strconv.Itoa(i)] = ""
	}
	at := time.Now()
	opts := func(o ...Option) []Option { return o }
	for _, c := range []struct {
		name, field     string
		host, procedure string
		args            any
		opts            []Option
	}{
		{"no host", "host", "", "p", nil, nil},
		{"long host", "host", big(256), "p", nil, nil},
		{"host not UTF-8", "host", "\xff", "p", nil, nil},
		{"no procedure", "procedure", "h", "", nil, nil},
		{"long procedure", "procedure", "h", big(129), nil, nil},
		{"procedure not UTF-8", "procedure", "h", "\xff", nil, nil},
		{"args a number", "args", "h", "p", 5, nil},
		{"args a string", "args", "h", "p", "x", nil},
		{"args with int keys", "args", "h", "p", map[int]int{1: 2}, nil},
		{"args a channel", "args", "h", "p", make(chan int), nil},
		{"args too large", "args", "h", "p", Args{"x": big(MaxArgs)}, nil},
		{"args too deep", "args", "h", "p", Args{"x": deepList(40)}, nil},
		{"id no UUID", "id", "h", "p", nil, opts(JobID("x"))},
		{"id version 4", "id", "h", "p", nil, opts(JobID("8c9c2f3e-1a2b-4c3d-8e9f-000000000001"))},
		{"id upper case", "id", "h", "p", nil, opts(JobID(strings.ToUpper("0198f0a2-7c11-7000-8000-00000000000a")))},
		{"queue a string", "queue", "h", "p", nil, opts(Queue("x"))},
		{"queue a list", "queue", "h", "p", nil, opts(Queue([]int{1}))},
		{"queue with int keys", "queue", "h", "p", nil, opts(Queue(map[int]int{1: 2}))},
		{"queue too long", "queue", "h", "p", nil, opts(Queue(Args{"x": big(MaxQueueName)}))},
		{"queue a channel", "queue", "h", "p", nil, opts(Queue(make(chan int)))},
		{"concurrency 0", "concurrency", "h", "p", nil, opts(Concurrency(0))},
		{"concurrency negative", "concurrency", "h", "p", nil, opts(Options(CallOptions{Concurrency: -1}))},
		{"priority", "priority", "h", "p", nil, opts(Priority(101))},
		{"priority low", "priority", "h", "p", nil, opts(Priority(-101))},
		{"timeout 0", "silence_timeout", "h", "p", nil, opts(SilenceTimeout(0))},
		{"timeout negative", "silence_timeout", "h", "p", nil, opts(SilenceTimeout(-1))},
		{"timeout negative in struct", "silence_timeout", "h", "p", nil, opts(Options(CallOptions{SilenceTimeout: -1}))},
		{"max exec time 0", "max_exec_time", "h", "p", nil, opts(MaxExecTime(0))},
		{"max exec time negative", "max_exec_time", "h", "p", nil, opts(MaxExecTime(-1))},
		{"offline wait 0", "offline_wait", "h", "p", nil, opts(OfflineWait(0))},
		{"offline wait negative", "offline_wait", "h", "p", nil, opts(OfflineWait(-1))},
		{"when offline", "when_offline", "h", "p", nil, opts(WhenOffline("panic"))},
		{"retry after success", "retry.on", "h", "p", nil, opts(Retry(RetryPolicy{On: []State{StateLost, StateSucceeded}}))},
		{"retry after too much", "retry.on", "h", "p", nil, opts(Retry(RetryPolicy{On: []State{StateLost, StateLost, StateLost, StateLost}}))},
		{"too many attempts", "retry.attempts", "h", "p", nil, opts(Retry(RetryPolicy{Attempts: 101}))},
		{"attempts negative", "retry.attempts", "h", "p", nil, opts(Retry(RetryPolicy{Attempts: -1}))},
		{"backoff negative", "retry.backoff", "h", "p", nil, opts(Retry(RetryPolicy{Backoff: -1}))},
		{"longest backoff negative", "retry.max_backoff", "h", "p", nil, opts(Retry(RetryPolicy{MaxBackoff: -1}))},
		{"empty key", "idempotency_key", "h", "p", nil, opts(IdempotencyKey("", time.Minute))},
		{"empty key for no time", "idempotency_key", "h", "p", nil, opts(IdempotencyKey("", 0))},
		{"ttl without key", "idempotency_key", "h", "p", nil, opts(Options(CallOptions{IdempotencyTTL: time.Minute}))},
		{"long key", "idempotency_key", "h", "p", nil, opts(IdempotencyKey(big(257), time.Minute))},
		{"key not UTF-8", "idempotency_key", "h", "p", nil, opts(IdempotencyKey("\xff", time.Minute))},
		{"key without ttl", "idempotency_ttl", "h", "p", nil, opts(Options(CallOptions{IdempotencyKey: "k"}))},
		{"short ttl", "idempotency_ttl", "h", "p", nil, opts(IdempotencyKey("k", time.Second-1))},
		{"long ttl", "idempotency_ttl", "h", "p", nil, opts(IdempotencyKey("k", 30*24*time.Hour+1))},
		{"before after", "start_before", "h", "p", nil, opts(StartAfter(at), StartBefore(at.Add(-1)))},
		{"far future", "start_after", "h", "p", nil, opts(StartAfter(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)))},
		{"far past", "start_before", "h", "p", nil, opts(StartBefore(time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC)))},
		{"info too large", "info", "h", "p", nil, opts(Info(big(MaxInfo)))},
		{"info a function", "info", "h", "p", nil, opts(Info(func() {}))},
		{"too many labels", "labels", "h", "p", nil, opts(Options(CallOptions{Labels: many}))},
		{"label without key", "label", "h", "p", nil, opts(Label("", "v"))},
		{"label with long key", "label " + big(65), "h", "p", nil, opts(Label(big(65), "v"))},
		{"label with long value", "label k", "h", "p", nil, opts(Label("k", big(257)))},
		{"label not UTF-8", "label k", "h", "p", nil, opts(Label("k", "\xff"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &spy{}
			_, err := NewCaller(s).Host(c.host).Call(t.Context(), c.procedure, c.args, c.opts...)
			wantField(t, err, c.field)
			if RanOf(err) != DidNotRun || FaultOf(err) != FaultCaller || len(s.submitted) > 0 {
				t.Errorf("%v: %s, %s, %d sent", err, RanOf(err), FaultOf(err), len(s.submitted))
			}
		})
	}
}

// TestInvalidRequest: what no option can make but bytes from outside can is refused
// as well.
func TestInvalidRequest(t *testing.T) {
	ok := resolve(t)
	for field, change := range map[string]func(*Request){
		"concurrency":     func(r *Request) { r.Concurrency = -1 },
		"traceparent":     func(r *Request) { r.TraceParent = strings.Repeat("x", 257) },
		"needs":           func(r *Request) { r.Needs = slices.Repeat([]string{"x"}, 17) },
		"silence_timeout": func(r *Request) { r.SilenceTimeout = -1 },
		"args":            func(r *Request) { r.Args = Value{0xc1} },
		"info":            func(r *Request) { r.Info = Value{0xc1} },
		"queue":           func(r *Request) { r.Queue = Value{0x81, 1, 2} },
		"id":              func(r *Request) { r.ID = "" },
		"retry_of":        func(r *Request) { r.RetryOf = "x" },
	} {
		r := ok
		change(&r)
		wantField(t, r.Check(), field)
		_, err := DecodeRequest(r.Encode())
		wantField(t, err, field)
	}
	for _, raw := range [][]byte{nil, {0xc0}, {0x91, 1}, {0xc1}, appendMessage(nil, versioned{2, ok})} {
		_, err := DecodeRequest(raw)
		wantField(t, err, "request")
	}
}

var (
	genLabels = rapid.Map(rapid.MapOfN(rapid.StringN(0, 12, -1), rapid.StringN(0, 12, -1), 0, 3), func(m map[string]string) map[string]string {
		if len(m) == 0 {
			return nil
		}
		return m
	})
	genValue = rapid.Map(anyValue(2), func(v any) Value {
		made, err := NewValue(v)
		if err != nil {
			panic(err)
		}
		return made
	})
)

func orNil[T any](g *rapid.Generator[[]T]) *rapid.Generator[[]T] {
	return rapid.OneOf(rapid.Just[[]T](nil), g)
}

func genRequest(t *rapid.T) Request {
	text := rapid.StringN(1, 20, 60)
	after := rapid.Int64Range(0, 1<<61).Draw(t, "after")
	r := Request{
		ID: NewID(), Host: text.Draw(t, "host"), Procedure: text.Draw(t, "procedure"),
		Concurrency: rapid.IntRange(0, 1000).Draw(t, "concurrency"), Priority: rapid.IntRange(-100, 100).Draw(t, "priority"),
		SilenceTimeout: time.Duration(rapid.Int64Min(0).Draw(t, "timeout")),
		MaxExecTime:    time.Duration(rapid.Int64Min(0).Draw(t, "max")), OfflineWait: time.Duration(rapid.Int64Min(0).Draw(t, "offline")),
		StartAfter: msgpack.FromNanos(after), WhenOffline: rapid.SampledFrom([]OfflinePolicy{WaitForHost, FailFast}).Draw(t, "policy"),
		Info: genValue.Draw(t, "info"), Labels: genLabels.Filter(func(m map[string]string) bool { return m[""] == "" && !hasKey(m, "") }).Draw(t, "labels"),
		TraceParent: text.Draw(t, "trace"), Needs: orNil(rapid.SliceOfN(text, 1, 3)).Draw(t, "needs"),
	}
	if rapid.Bool().Draw(t, "again") {
		outcomes := rapid.SliceOfNDistinct(rapid.SampledFrom([]State{StateLost, StateTimedOut, StateFailed}), 0, 3, rapid.ID[State])
		r.Retry = RetryPolicy{
			On: orNil(outcomes.Filter(func(on []State) bool { return len(on) > 0 })).Draw(t, "on"), Attempts: rapid.IntRange(0, 100).Draw(t, "attempts"),
			Backoff: time.Duration(rapid.Int64Min(0).Draw(t, "backoff")), MaxBackoff: time.Duration(rapid.Int64Min(0).Draw(t, "longest backoff")),
		}
		r.RetryOf, r.DryRun, r.IdempotencyKey = NewID(), rapid.Bool().Draw(t, "dry"), text.Draw(t, "key")
		r.IdempotencyTTL = time.Duration(rapid.Int64Range(int64(minKeyTTL), int64(maxKeyTTL)).Draw(t, "ttl"))
	}
	if rapid.Bool().Draw(t, "bounded") {
		r.StartBefore = msgpack.FromNanos(after + rapid.Int64Range(1, 1<<61).Draw(t, "window"))
	}
	var err error
	if rapid.Bool().Draw(t, "named") {
		r.Args, err = NewValue(rapid.MapOfN(text, anyValue(2), 0, 4).Draw(t, "args"))
	} else {
		r.Args, err = NewValue(rapid.SliceOfN(anyValue(2), 1, 4).Draw(t, "args"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "queued") {
		if r.Queue, err = QueueName(rapid.MapOfN(text, rapid.Int(), 0, 4).Draw(t, "queue")); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func hasKey(m map[string]string, k string) bool { _, ok := m[k]; return ok }

// TestRequestRoundTrip: a request is decoded to what was encoded, its bytes are the
// same each time, and so is its digest.
func TestRequestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genRequest(t)
		raw := want.Encode()
		got, err := DecodeRequest(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v, want\n%+v", got, want)
		}
		if !bytes.Equal(got.Encode(), raw) {
			t.Fatal("encoding again gives other bytes")
		}
		if got.Digest() != want.Digest() {
			t.Fatal("the digest has changed")
		}
	})
}

// TestVerbatim: what Host.Call submits are the bytes of the request, as they are
// signed, sent and stored.
func TestVerbatim(t *testing.T) {
	s := &spy{}
	id := NewID()
	job, err := NewCaller(s).Host("web01").Call(t.Context(), "p", Args{"a": 1}, JobID(id))
	if err != nil {
		t.Fatal(err)
	}
	if job.ID() != id {
		t.Error(job.ID())
	}
	want := Request{ID: id, Host: "web01", Procedure: "p", Args: mustValue(t, Args{"a": 1})}
	if got := s.submitted[0]; !bytes.Equal(got.Request, want.Encode()) || got.Signature != nil || got.KeyID != "" {
		t.Errorf("got %x", got.Request)
	}
}

// TestDigest: two requests are the same when host, procedure, arguments and queue
// are, compared by content; nothing else counts.
func TestDigest(t *testing.T) {
	request := func(args, queue any) Request {
		name, err := QueueName(queue)
		if err != nil {
			t.Fatal(err)
		}
		return Request{ID: NewID(), Host: "h", Procedure: "p", Args: mustValue(t, args), Queue: name}
	}
	base := request(Args{"a": 1, "b": []any{1.0, nil}}, Args{"x": 1, "y": 2})
	same := request(struct {
		B []any   `json:"b"`
		A float64 `json:"a"`
	}{[]any{1, nil}, 1}, struct {
		Y float32 `json:"y"`
		X int     `json:"x"`
	}{2, 1})
	same.SilenceTimeout, same.StartAfter, same.Priority, same.Info, same.Labels = 5, time.Now(), 7, Value{1}, map[string]string{"k": "v"}
	if base.Digest() != same.Digest() {
		t.Error("the same by content has another digest")
	}
	if a, b := (Request{Args: Value{0x82, 0xa1, 'a', 1, 0xa1, 'b', 2}}), (Request{Args: Value{0x82, 0xa1, 'b', 2, 0xa1, 'a', 1}}); a.Digest() != b.Digest() {
		t.Error("the order of keys counts")
	}
	others := []Request{
		base, request(Args{"a": 1, "b": []any{1.0}}, Args{"x": 1, "y": 2}), request(Args{"a": 1, "b": []any{1.0, nil}}, Args{"x": 1}),
		request(Args{"a": 1, "b": []any{1.0, nil}}, nil), request(Args{"a": 1, "b": []any{1.0, nil}}, Args{}), request(nil, nil), request(Pos(1), nil),
		{Host: "h2", Procedure: "p"},
		{Host: "h", Procedure: "2p"},
		{Args: Value{0x81, 0xa1, 'k', 0xd4, 0x53, 1}},
		{Args: Value{0x81, 0xa1, 'k', 0xd4, 0x53, 2}},
	}
	seen := map[[32]byte]int{}
	for i, r := range others {
		if j, dup := seen[r.Digest()]; dup {
			t.Errorf("%d and %d have the same digest", i, j)
		}
		seen[r.Digest()] = i
	}
}

// BenchmarkNewID makes ids in several goroutines.
func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			NewID()
		}
	})
}

func TestIDs(t *testing.T) {
	var ids []string
	before := time.Now().Add(-time.Millisecond)
	for range 1000 {
		ids = append(ids, NewID())
	}
	if n := testing.AllocsPerRun(100, func() { NewID() }); n > 2 {
		t.Errorf("%v allocations", n)
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Error("ids are not unique and in the order in which they were made")
	}
	for _, id := range ids {
		if err := CheckID(id); err != nil {
			t.Fatal(err)
		}
		if at := IDTime(id); at.Before(before) || at.After(time.Now().Add(time.Second)) || at.Location() != time.UTC {
			t.Fatal(at)
		}
	}
	for _, bad := range []string{"", "x", "{0198f0a2-7c11-7000-8000-000000000001}", "urn:uuid:0198f0a2-7c11-7000-8000-000000000001", "0198f0a27c1170008000000000000001"} {
		if !errors.Is(CheckID(bad), ErrInvalid) {
			t.Errorf("%q was accepted", bad)
		}
	}
	if !IDTime("x").IsZero() {
		t.Error("no id has a time")
	}
}

// FuzzDecodeRequest: any bytes are refused with ErrInvalid or are a request that can
// be sent on and compared.
func FuzzDecodeRequest(f *testing.F) {
	full := Request{
		ID: "0198f0a2-7c11-7000-8000-000000000001", Host: "h", Procedure: "p", Args: Value{0x81, 0xa1, 'a', 0xca, 0x3f, 0x80, 0, 0},
		Queue: Value{0x81, 0xa1, 'q', 1}, Info: Value{0xc3}, Labels: map[string]string{"a": "b"}, SilenceTimeout: math.MaxInt64,
		StartAfter: time.Unix(5, 0), StartBefore: time.Unix(6, 0), WhenOffline: FailFast, TraceParent: "00", Needs: []string{"x"},
	}
	f.Add(full.Encode())
	f.Add(Request{ID: full.ID, Host: "h", Procedure: "p", Args: Value{0x91, 0xc0}}.Encode())
	f.Add(Request{ID: full.ID, Host: "h", Procedure: "p", Queue: Value{0x81, 0xa1, 'q', 0xca, 0, 0, 0, 0}}.Encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := DecodeRequest(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || FaultOf(err) != FaultCaller {
				t.Fatal(err)
			}
			return
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		again, err := DecodeRequest(r.Encode())
		if err != nil || again.Digest() != r.Digest() || !bytes.Equal(again.Encode(), r.Encode()) {
			t.Fatalf("%+v became %+v: %v", r, again, err)
		}
	})
}
