package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var keeping = []rule{
	{"store/id", "a store has an id of its own", func(w *world) {
		if w.st.ID() == "" {
			w.Fatal("the id is empty")
		}
	}},
	{"store/close", "Close is idempotent, and afterwards every method answers harp.ErrClosed", func(w *world) {
		j := w.submit()
		w.must(w.st.Close())
		w.must(w.st.Close())
		_, errs := w.everyMethod(j.ID)
		for name, err := range errs {
			if !isClosed(err) {
				w.Errorf("%s: %v, want ErrClosed", name, err)
			}
		}
	}},
	{"host/epoch", "each session raises the epoch of its host and notes what it said", func(w *world) {
		s := store.Session{
			Host: "h", Fingerprint: "f", Owner: "o", Instance: "i", Boot: "b", Journal: "j", Taken: 7,
			Software: "s", Labels: map[string]string{"k": "v"}, At: w.now,
		}
		for want := uint64(1); want < 4; want++ {
			epoch, err := w.st.OpenSession(w.ctx(), s)
			w.must(err)
			if epoch != want {
				w.Fatalf("epoch is %d, want %d", epoch, want)
			}
		}
		if epoch, err := w.st.OpenSession(w.ctx(), store.Session{Host: "other"}); err != nil || epoch != 1 {
			w.Fatalf("epoch of another host is %d, %v", epoch, err)
		}
		got, err := w.st.Host(w.ctx(), "h")
		w.must(err)
		want := store.Host{
			Name: "h", Fingerprint: "f", Owner: "o", Epoch: 3, Instance: "i", Boot: "b", Journal: "j", Taken: 7,
			Software: "s", Labels: map[string]string{"k": "v"}, LastHeard: w.now,
		}
		if !reflect.DeepEqual(got, want) {
			w.Fatalf("host is\n%+v, want\n%+v", got, want)
		}
	}},
	{"host/put", "what is known of a host is replaced but for its epoch, and stays through its next session", func(w *world) {
		w.wants(w.st.PutHost(w.ctx(), store.Host{Name: "h"}), harp.ErrNotFound)
		_, err := w.st.Host(w.ctx(), "h")
		w.wants(err, harp.ErrNotFound)
		_, err = w.st.OpenSession(w.ctx(), store.Session{Host: "h", At: w.now})
		w.must(err)
		for _, size := range []int{1, 400_000, 10} { // long, and short again
			want := fullHost(size, w.now)
			w.must(w.st.PutHost(w.ctx(), want))
			want.Epoch = 1
			got, err := w.st.Host(w.ctx(), "h")
			w.must(err)
			if !reflect.DeepEqual(got, want) {
				w.Fatalf("host is\n%.200s, want\n%.200s", fmt.Sprint(got), fmt.Sprint(want))
			}
		}
		_, err = w.st.OpenSession(w.ctx(), store.Session{Host: "h", At: w.now})
		w.must(err)
		got, err := w.st.Host(w.ctx(), "h")
		w.must(err)
		if got.Epoch != 2 || len(got.Procedures) == 0 || got.Facts == nil {
			w.Fatalf("after a session the host is %+v", got)
		}
	}},
	{"host/list", "hosts are listed in the order of their names, page by page, and a cursor of nobody is ErrInvalid", func(w *world) {
		var want []string
		for i := range 25 {
			_, err := w.st.OpenSession(w.ctx(), store.Session{Host: fmt.Sprintf("host%02d", i*7%25)})
			w.must(err)
			want = append(want, fmt.Sprintf("host%02d", i))
		}
		var got []string
		cursor := ""
		for range 10 {
			page, next, err := w.st.ListHosts(w.ctx(), cursor, 10)
			w.must(err)
			for _, h := range page {
				got = append(got, h.Name)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			w.Fatalf("hosts are %q", got)
		}
		_, _, err := w.st.ListHosts(w.ctx(), "no cursor", 10)
		w.wants(err, harp.ErrInvalid)
	}},
	{"document", "a document is what was put last, whatever its size; of more than 1 MiB it is ErrInvalid", func(w *world) {
		_, err := w.st.Document(w.ctx(), "kind", "name")
		w.wants(err, harp.ErrNotFound)
		for _, size := range []int{3, 1 << 20, 64 << 10, 0, 200_000} {
			content := bytes.Repeat([]byte{byte(size)}, size)
			w.must(w.st.PutDocument(w.ctx(), "kind", "name", content))
			w.must(w.st.PutDocument(w.ctx(), "kindname", "", []byte("another")))
			got, err := w.st.Document(w.ctx(), "kind", "name")
			w.must(err)
			if !bytes.Equal(got, content) {
				w.Fatalf("%d bytes came back as %d", size, len(got))
			}
		}
		w.wants(w.st.PutDocument(w.ctx(), "kind", "name", make([]byte, 1<<20+1)), harp.ErrInvalid)
	}},
}

func fullHost(size int, now time.Time) store.Host {
	return store.Host{
		Name: "h", Fingerprint: "f", Owner: "o", Instance: "i", Boot: "b", Journal: "j", Taken: 8, Software: "s",
		Labels: map[string]string{"k": "v"}, Facts: harp.Value{0x80}, LastHeard: now,
		Procedures: []harp.ProcedureDoc{{
			Name: "p", Summary: "sum", Doc: strings.Repeat("d", size), Params: []string{"a", "b"},
			Args: json.RawMessage(`{"type":"object"}`), SilenceTimeout: time.Second, MaxExecTime: time.Hour,
			Streams: true, Idempotent: true, Traits: []string{"t"},
		}},
	}
}

// everyMethod calls each method that can fail and returns what came of it.
func (w *world) everyMethod(id string) (*store.Job, map[string]error) {
	st, ctx := w.st, w.ctx()
	errs := map[string]error{}
	var j *store.Job
	_, errs["Submit"] = st.Submit(ctx, []store.Submission{w.submission()}, w.now)
	_, errs["Claim"] = st.Claim(ctx, []string{"h"}, 1, w.now)
	_, errs["Apply"] = st.Apply(ctx, store.Transition{ID: id, Event: store.Event{Kind: store.CancelReq}})
	_, errs["Advance"] = st.Advance(ctx, w.now)
	j, errs["Job"] = st.Job(ctx, id)
	_, errs["Request"] = st.Request(ctx, id)
	_, errs["Value"] = st.Value(ctx, id)
	_, errs["Active"] = st.Active(ctx, "")
	_, errs["List"] = st.List(ctx, store.Filter{}, "")
	_, errs["Append"] = st.Append(ctx, store.Append{ID: id})
	_, errs["Read"] = st.Read(ctx, id, 0, store.ReadLimit{Bytes: 1})
	_, errs["Queue"] = st.Queue(ctx, queue("q"))
	_, _, errs["ListQueues"] = st.ListQueues(ctx, "", 1)
	_, errs["CancelQueue"] = st.CancelQueue(ctx, queue("q"), store.Operation{})
	_, errs["OpenSession"] = st.OpenSession(ctx, store.Session{Host: "h"})
	errs["PutHost"] = st.PutHost(ctx, store.Host{Name: "h"})
	_, errs["Host"] = st.Host(ctx, "h")
	_, errs["RemoveHost"] = st.RemoveHost(ctx, "h", store.Operation{})
	_, _, errs["ListHosts"] = st.ListHosts(ctx, "", 1)
	_, errs["Document"] = st.Document(ctx, "k", "n")
	errs["PutDocument"] = st.PutDocument(ctx, "k", "n", nil)
	_, _, errs["ListDocuments"] = st.ListDocuments(ctx, "k", "", 1)
	_, errs["ChangeDocuments"] = st.ChangeDocuments(ctx, store.DocumentChanges{Changes: []store.DocumentChange{{Kind: "k", Name: "n"}}})
	_, _, errs["DocumentsChanged"] = st.DocumentsChanged(ctx, store.Operation{ID: w.id()})
	errs["AppendEvents"] = st.AppendEvents(ctx, harp.Event{Type: harp.EventHostForgot})
	_, errs["Events"] = st.Events(ctx, harp.EventFilter{}, 1)
	_, errs["Prune"] = st.Prune(ctx, store.Retention{}, w.now)
	errs["Compact"] = st.Compact(ctx)
	_, errs["Size"] = st.Size()
	errs["Backup"] = st.Backup(ctx, io.Discard)
	errs["AwaitFailure"] = st.AwaitFailure(ctx)
	return j, errs
}
