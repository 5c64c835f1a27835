package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// Hosts that offer a procedure alike are judged once, whatever else they offer, and so are
// those that lack it and those that have said nothing.
func TestCandidatesAreJudgedByClass(t *testing.T) {
	f := &fleet{hosts: newHosts(), groups: &groups{}, now: time.Now}
	for i := range 1200 {
		name, docs := fmt.Sprintf("h%04d", i), sampleDocs()
		switch i % 4 {
		case 0:
			docs = append(docs, harp.ProcedureDoc{Name: fmt.Sprintf("own%d", i)})
		case 1:
			docs[0].SilenceTimeout = time.Minute
		case 2:
			docs = docs[1:]
		case 3:
			docs = nil
		}
		hostNamed(f.hosts, name, docs)
	}
	args, err := harp.NewValue(harp.Args{"count": "many"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.findCandidates(t.Context(), "*", "b", args)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.hosts) != 1200 || len(got.classes) != 4 {
		t.Fatalf("there are %d hosts in %d classes", len(got.hosts), len(got.classes))
	}
	var field *harp.FieldError
	for i, one := range got.hosts {
		class := got.classes[one.class]
		if one.name != fmt.Sprintf("h%04d", i) || !one.away || class.proc.Name != "b" && i%4 != 2 {
			t.Fatalf("host %d is %+v of %+v", i, one, class)
		}
		switch i % 4 {
		case 0, 1:
			if !errors.As(class.unfit, &field) || class.proc.SilenceTimeout != time.Duration(i%4)*time.Minute {
				t.Fatalf("host %d is of %+v", i, class)
			}
		case 2:
			if !errors.Is(class.unfit, harp.ErrNotFound) {
				t.Fatalf("host %d is of %+v", i, class)
			}
		case 3:
			if class.unfit != nil {
				t.Fatalf("host %d is of %+v", i, class)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, text := range []string{"*", "h0001,h0002"} {
		if _, err := f.findCandidates(ctx, text, "b", args); !errors.Is(err, context.Canceled) {
			t.Errorf("when nobody waits any more %s gives %v", text, err)
		}
	}
}
