package agent

import "testing"

// Results of direct callers that do not take them are dropped when they have half of what there is;
// others still have room.
func TestResultsOfDirectCallersAreBounded(t *testing.T) {
	const size = 1 << 20
	var m memory
	fill := func(caller string) (kept int64) {
		for !m.isOver(caller, size) {
			m.count(caller, size)
			kept += size
		}
		return kept
	}
	for i, caller := range []string{"one", "two", "three"} {
		if kept, want := fill(caller), int64(maxDirectBytes)>>(i+1); kept != want {
			t.Errorf("of %s %d bytes are kept, not %d", caller, kept, want)
		}
	}
	if m.isOver("", 1<<30) || m.isOver("one", freeBytes) {
		t.Error("a dispatcher's, or a short one, is dropped")
	}
	m.count("one", -maxDirectBytes/2)
	if len(m.byCaller) != 2 || m.isOver("two", size) {
		t.Errorf("when one has taken all: %v", m.byCaller)
	}
}
