package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// change puts content in the place of another; "-" is none.
func change(name, from, to string) store.DocumentChange {
	content := func(text string) []byte {
		if text == "-" {
			return nil
		}
		return []byte(text)
	}
	return store.DocumentChange{Kind: "k", Name: name, Old: content(from), New: content(to)}
}

// tryDocuments makes changes together.
func (w *world) tryDocuments(changes ...store.DocumentChange) error {
	_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Changes: changes})
	return err
}

// contents are the documents of a kind, as "name=content".
func (w *world) contents(kind string) (all []string) {
	w.Helper()
	for cursor := ""; ; {
		page, next, err := w.st.ListDocuments(w.ctx(), kind, cursor, 2)
		w.must(err)
		for _, d := range page {
			all = append(all, d.Name+"="+string(d.Content))
		}
		if cursor = next; cursor == "" {
			return all
		}
	}
}

// wantContents checks what documents of kind "k" there are.
func (w *world) wantContents(want ...string) {
	w.Helper()
	if got := w.contents("k"); strings.Join(got, " ") != strings.Join(want, " ") {
		w.Fatalf("the documents are %q, want %q", got, want)
	}
}

var documents = []rule{
	{"document/list", "documents of a kind, and no others, are listed in the order of their names, page by page; a cursor of nobody is ErrInvalid", func(w *world) {
		w.must(w.st.PutDocument(w.ctx(), "kk", "z", []byte("other")))
		var want []string
		for i := range 25 {
			w.must(w.st.PutDocument(w.ctx(), "k", fmt.Sprintf("d%02d", i*7%25), []byte{'0' + byte(i*7%25)}))
			want = append(want, fmt.Sprintf("d%02d=%c", i, '0'+i))
		}
		w.wantContents(want...)
		if got := w.contents("none"); got != nil {
			w.Fatalf("of a kind that there is not, there is %q", got)
		}
		_, _, err := w.st.ListDocuments(w.ctx(), "k", "no cursor", 10)
		w.wants(err, harp.ErrInvalid)
	}},
	{"document/list/large", "a page of documents is of about 1 MiB, whatever its limit, and at least one is in it", func(w *world) {
		for i := range 5 {
			w.must(w.st.PutDocument(w.ctx(), "k", fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, 900_000)))
		}
		n, pages := 0, 0
		for cursor := ""; ; {
			page, next, err := w.st.ListDocuments(w.ctx(), "k", cursor, 1000)
			w.must(err)
			if pages++; len(page) == 0 || len(page) > 2 {
				w.Fatalf("there are %d documents in a page", len(page))
			}
			for _, d := range page {
				if len(d.Content) != 900_000 || d.Content[0] != byte(n) {
					w.Fatalf("document %d has %d bytes", n, len(d.Content))
				}
				n++
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if n != 5 {
			w.Fatalf("there are %d documents", n)
		}
	}},
	{"document/change", "a document is changed if it is what it is said to be, made if it is said not to be there, and deleted", func(w *world) {
		w.must(w.tryDocuments(change("a", "-", "1"), change("b", "-", "")))
		w.wantContents("a=1", "b=")
		w.must(w.tryDocuments(change("a", "1", "2"), change("b", "", "-"), change("c", "-", "-")))
		w.wantContents("a=2")
		long := strings.Repeat("x", 200_000) // of several pieces
		w.must(w.tryDocuments(change("a", "2", long), change("c", "-", long)))
		w.must(w.tryDocuments(change("a", long, "3"), change("c", long, "-")))
		w.wantContents("a=3")
		_, err := w.st.Document(w.ctx(), "k", "c")
		w.wants(err, harp.ErrNotFound)
	}},
	{"document/conflict", "when one document is not what it is said to be, nothing is changed, no event is written and the error is ErrConflict, which names it", func(w *world) {
		w.must(w.tryDocuments(change("a", "-", "1")))
		for _, wrong := range []store.DocumentChange{
			change("a", "-", "2"), change("a", "", "2"), change("a", "2", "2"), change("a", "1x", "-"),
			change("none", "1", "2"), change("none", "", "-"),
		} {
			_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{
				Changes: []store.DocumentChange{change("z", "-", "1"), wrong},
				Events:  []harp.Event{{Type: harp.EventHostForgot}},
			})
			w.wants(err, harp.ErrConflict)
			if !strings.Contains(err.Error(), "k "+wrong.Name) {
				w.Fatalf("the error is %v", err)
			}
		}
		w.wantContents("a=1")
		if got := w.events(harp.EventFilter{After: harp.EventsFromStart}); len(got) > 0 {
			w.Fatalf("there are events %v", got)
		}
	}},
	{"document/events", "a change of documents writes its events in its commit", func(w *world) {
		_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{
			Changes: []store.DocumentChange{change("a", "-", "1")},
			Events:  []harp.Event{{Type: harp.EventHostForgot, Host: "h", Time: w.now}, {Type: harp.EventHostForgot, Host: "i", Time: w.now}},
		})
		w.must(err)
		got := w.events(harp.EventFilter{After: harp.EventsFromStart})
		if len(got) != 2 || got[0].Host != "h" || got[1].Host != "i" || !got[0].Time.Equal(w.now) {
			w.Fatalf("the events are %+v", got)
		}
	}},
	{"document/bounds", "a document of more than 1 MiB, one that is changed twice, and more than 2.75 MiB in all are ErrInvalid, and nothing is changed", func(w *world) {
		w.wants(w.tryDocuments(change("z", "-", "1"), change("a", "-", strings.Repeat("x", 1<<20+1))), harp.ErrInvalid)
		w.wants(w.tryDocuments(change("a", "-", "1"), change("a", "1", "2")), harp.ErrInvalid)
		large := strings.Repeat("x", 1<<20)
		w.wants(w.tryDocuments(change("a", "-", large), change("b", "-", large), change("c", "-", large)), harp.ErrInvalid)
		w.wantContents()
		w.must(w.tryDocuments(change("a", "-", large), change("b", "-", large)))
	}},
	{"document/once", "a change of documents that is asked for again under its id changes nothing and returns what came of the first; of another one it is ErrConflict", func(w *world) {
		op := store.Operation{ID: w.id(), By: harp.Principal{Kind: "k", Name: "n"}, Time: w.now, Asked: []byte("what")}
		if _, done, err := w.st.DocumentsChanged(w.ctx(), op); err != nil || done {
			w.Fatalf("before it was asked for it was done: %v, %v", done, err)
		}
		first := store.DocumentChanges{Changes: []store.DocumentChange{change("a", "-", "1")}, Op: op, Count: 7}
		for range 2 {
			n, err := w.st.ChangeDocuments(w.ctx(), first)
			if w.must(err); n != 7 {
				w.Fatalf("it returns %d", n)
			}
			first.Count = 9
			if n, done, err := w.st.DocumentsChanged(w.ctx(), op); err != nil || !done || n != 7 {
				w.Fatalf("it was done: %v, %d, %v", done, n, err)
			}
		}
		w.wantContents("a=1")
		for _, other := range []store.Operation{
			{ID: op.ID, By: op.By, Asked: []byte("something else")}, {ID: op.ID, Asked: op.Asked},
		} {
			_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Op: other})
			w.wants(err, harp.ErrConflict)
			_, _, err = w.st.DocumentsChanged(w.ctx(), other)
			w.wants(err, harp.ErrConflict)
		}
		_, _, err := w.st.DocumentsChanged(w.ctx(), store.Operation{ID: "none"})
		w.wants(err, harp.ErrInvalid)
	}},
	{"document/once/refused", "what whoever asks may not do now is refused, unless it was done before", func(w *world) {
		why := errors.New("not now")
		op := store.Operation{ID: w.id(), By: harp.Principal{Kind: "k", Name: "n"}, Time: w.now, Asked: []byte("what"), Refused: why}
		c := store.DocumentChanges{Changes: []store.DocumentChange{change("a", "-", "1")}, Op: op, Count: 7}
		_, err := w.st.ChangeDocuments(w.ctx(), c)
		w.wants(err, why)
		_, _, err = w.st.DocumentsChanged(w.ctx(), op)
		w.wants(err, why)
		w.wantContents()
		c.Op.Refused = nil
		_, err = w.st.ChangeDocuments(w.ctx(), c)
		w.must(err)
		if n, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Op: op}); err != nil || n != 7 {
			w.Fatalf("it was done before: %d, %v", n, err)
		}
		if n, done, err := w.st.DocumentsChanged(w.ctx(), op); err != nil || !done || n != 7 {
			w.Fatalf("it was done before: %d, %v, %v", n, done, err)
		}
	}},
	{"document/once/failed", "a change of documents that was refused may be asked for again under its id", func(w *world) {
		c := store.DocumentChanges{Changes: []store.DocumentChange{change("a", "1", "2")}, Op: store.Operation{ID: w.id(), Time: w.now}}
		_, err := w.st.ChangeDocuments(w.ctx(), c)
		w.wants(err, harp.ErrConflict)
		w.must(w.tryDocuments(change("a", "-", "1")))
		_, err = w.st.ChangeDocuments(w.ctx(), c)
		w.must(err)
		w.wantContents("a=2")
	}},
	{"document/once/forgotten", "what came of a change of documents is forgotten with the ids of its time, which are ErrPruned then", func(w *world) {
		op := store.Operation{ID: w.id(), Time: w.now}
		_, err := w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Op: op, Count: 1})
		w.must(err)
		w.pass(store.TombstoneTime + time.Hour)
		w.prune(store.Retention{})
		_, _, err = w.st.DocumentsChanged(w.ctx(), op)
		w.wants(err, harp.ErrPruned)
		_, err = w.st.ChangeDocuments(w.ctx(), store.DocumentChanges{Op: op})
		w.wants(err, harp.ErrPruned)
	}},
	{"document/race", "of changes at the same time that expect the same content one is made", func(w *world) {
		w.must(w.tryDocuments(change("a", "-", "0")))
		errs := make([]error, 16)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = w.tryDocuments(change("a", "0", "x"), change(fmt.Sprint("by", i), "-", "x")) })
		}
		all.Wait()
		made := 0
		for _, err := range errs {
			if err == nil {
				made++
				continue
			}
			w.wants(err, harp.ErrConflict)
		}
		if got := w.contents("k"); made != 1 || len(got) != 2 {
			w.Fatalf("%d were made, and there is %q", made, got)
		}
	}},
}
