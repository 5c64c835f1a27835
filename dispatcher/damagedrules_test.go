package dispatcher

import (
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// lostClasses is a store that does not know any more of which rule something was that has ended.
type lostClasses struct{ store.Store }

func (s lostClasses) RetentionClasses() []store.RetentionClass {
	return append(s.Store.RetentionClasses(), store.RetentionClass{No: 7, Keep: harp.NoLimit})
}

// A retention rule that cannot be read keeps nothing, and a class that cannot be read keeps all: Health says so.
func TestHealthTellsOfDamagedRules(t *testing.T) {
	disk := memory.NewDisk()
	d, ctx := opened(t, memory.OpenDisk(disk, nil), Config{}), t.Context()
	s := d.service(ada)
	if err := s.PutRetentionRule(ctx, harp.NewID(), harp.RetentionRule{Name: "audit", Procedure: "user.*", Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := d.Health(ctx).Checks["retention"]; err != nil {
		t.Errorf("of a rule that can be read Health says %v", err)
	}
	d = opened(t, damagedDocuments{memory.OpenDisk(disk, nil), []string{store.RetentionKind}}, Config{})
	h := d.Health(ctx)
	if err := h.Checks["retention"]; err == nil || !strings.HasPrefix(err.Error(), "1 rules cannot be read") || !strings.HasSuffix(err.Error(), " audit") || !h.Ready {
		t.Errorf("Health says %v, ready: %t", err, h.Ready)
	}
	if err := d.service(ada).DeleteRetentionRule(ctx, harp.NewID(), "audit"); err != nil {
		t.Fatal(err)
	}
	if err := d.Health(ctx).Checks["retention"]; err != nil {
		t.Errorf("of a rule that is deleted Health says %v", err)
	}
	d = opened(t, lostClasses{memory.OpenDisk(disk, nil)}, Config{})
	if err := d.Health(ctx).Checks["retention"]; err == nil || !strings.HasPrefix(err.Error(), "how long some jobs are to be kept") {
		t.Errorf("Health says %v", err)
	}
}
