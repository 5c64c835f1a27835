package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
)

// sampleDocs is made anew each time, as what an agent says is.
func sampleDocs() []harp.ProcedureDoc {
	return []harp.ProcedureDoc{
		{Name: "b", Summary: "second", Params: []string{"count"}, Args: json.RawMessage(`{"type":"object","properties":{"count":{"type":"integer"}}}`)},
		{Name: "a", Summary: "first", Traits: []string{harp.TraitDangerous}},
	}
}

func hostNamed(hs *hosts, name string, docs []harp.ProcedureDoc) *host {
	h := hs.get(name)
	h.setRow(store.Host{Name: name, Procedures: docs})
	return h
}

func TestHostsShareACatalogue(t *testing.T) {
	hs := newHosts()
	one, two := hostNamed(hs, "one", sampleDocs()), hostNamed(hs, "two", sampleDocs())
	if one.offers != two.offers {
		t.Error("two hosts that offer the same have a catalogue each")
	}
	if len(one.row.Procedures) != 2 || &one.row.Procedures[0] != &two.row.Procedures[0] {
		t.Error("the rows of two hosts that offer the same have a list each")
	}
	other := sampleDocs()
	other[0].Doc = "more"
	if three := hostNamed(hs, "three", other); three.offers == one.offers {
		t.Error("a host that offers something else shares a catalogue")
	}
	page, _ := one.procedures("", 10)
	if names := fmt.Sprint(one.status().Procedures, page[0].Name, page[1].Name); names != "[a b]ab" {
		t.Errorf("procedures are %s", names)
	}
}

// What is given to hosts is only read: hosts that have it may be asked meanwhile.
func TestCatalogueDoesNotSortWhatItIsGiven(t *testing.T) {
	docs := sampleDocs()
	newCatalogues().catalogueOf(docs)
	if docs[0].Name != "b" {
		t.Error("the list was sorted in place")
	}
}

// Each field that a procedure may differ in makes another catalogue, also fields
// that are added one day.
func TestDigestSeesEveryField(t *testing.T) {
	empty := digestOf([]harp.ProcedureDoc{{}})
	for f := range reflect.TypeFor[harp.ProcedureDoc]().NumField() {
		doc := harp.ProcedureDoc{}
		v := reflect.ValueOf(&doc).Elem().Field(f)
		switch v.Interface().(type) {
		case string:
			v.SetString("x")
		case bool:
			v.SetBool(true)
		case []string:
			v.Set(reflect.ValueOf([]string{"x"}))
		case json.RawMessage:
			v.SetBytes([]byte("x"))
		default:
			v.SetInt(1)
		}
		if digestOf([]harp.ProcedureDoc{doc}) == empty {
			t.Errorf("a different %s does not matter", reflect.TypeFor[harp.ProcedureDoc]().Field(f).Name)
		}
	}
}

func TestCatalogueThatNobodyHasIsForgotten(t *testing.T) {
	cs := newCatalogues()
	key := digestOf(slices.SortedFunc(slices.Values(sampleDocs()), byName))
	kept := cs.catalogueOf(sampleDocs())
	runtime.GC()
	if cs.get(key) != kept {
		t.Fatal("a catalogue that a host has was forgotten")
	}
	runtime.KeepAlive(kept)
	for range 10 { // it is collected in one of the next cycles
		if runtime.GC(); cs.get(key) == nil {
			return
		}
	}
	t.Error("a catalogue that nobody has is kept")
}

// That an agent comes back must not cost a schema compiled: thousands do at once.
func TestSetRowAllocations(t *testing.T) {
	needs.NoRaceDetector(t)
	hs := newHosts()
	h := hostNamed(hs, "one", sampleDocs())
	docs := slices.SortedFunc(slices.Values(sampleDocs()), byName)
	got := testing.AllocsPerRun(100, func() { h.setRow(store.Host{Name: "one", Procedures: docs}) })
	const budget = 4
	if got > budget {
		t.Errorf("%v allocations, at most %d", got, budget)
	}
}

func BenchmarkSetRow(b *testing.B) {
	hs := newHosts()
	h := hs.get("one")
	b.ReportAllocs()
	for b.Loop() {
		h.setRow(store.Host{Name: "one", Procedures: sampleDocs()})
	}
}

// Of the checks of arguments that take long one goes on at a time, for as long as its caller waits; others wait
// for none of them.
func TestLongChecksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := newCatalogues()
		c := cs.catalogueOf([]harp.ProcedureDoc{{Name: "long", Args: []byte(`{"items":{"anyOf":[` + strings.Repeat(`{"type":"integer"},`, 100) + `true]}}`)}})
		value := func(n int) harp.Value {
			v, err := harp.NewValue(make([]string, n))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cs.long <- struct{}{} // another one goes on
		if _, err := cs.checkCall(ctx, c, "long", value(10)); err != nil {
			t.Errorf("a short one: %v", err)
		}
		over := make(chan error, 2)
		go func() {
			_, err := cs.checkCall(ctx, c, "long", value(2000))
			over <- err
		}()
		go func() {
			_, err := cs.checkCall(t.Context(), c, "long", value(2000))
			over <- err
		}()
		synctest.Wait()
		if len(over) > 0 {
			t.Errorf("one goes on beside another: %v", <-over)
		}
		gone := errors.New("its caller has gone")
		cancel(gone)
		if err := <-over; !errors.Is(err, gone) {
			t.Errorf("one whose caller has gone: %v", err)
		}
		<-cs.long
		if err := <-over; err != nil {
			t.Errorf("the other: %v", err)
		}
		if len(cs.long) != 0 {
			t.Error("the turn is not given back")
		}
	})
}
