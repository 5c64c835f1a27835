package harp

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestMemberID holds the ids of members: they are part of the protocol.
func TestMemberID(t *testing.T) {
	const batch = "0193e4a0-1234-7abc-8def-0123456789ab"
	id := MemberID(batch, "web01", 1)
	if want := "0193e4a0-1234-8abc-"; !strings.HasPrefix(id, want) {
		t.Errorf("the id is %s, want one that begins with %s", id, want)
	}
	if v := id[19]; v != '8' && v != '9' && v != 'a' && v != 'b' {
		t.Errorf("%s has another variant", id)
	}
	seen := map[string]bool{id: true}
	for _, other := range []string{
		MemberID(batch, "web02", 1), MemberID(batch, "web01", 2), MemberID("0193e4a0-1234-7abc-8def-0123456789ac", "web01", 1),
	} {
		if seen[other] {
			t.Errorf("two members have the id %s", other)
		}
		seen[other] = true
	}
	if again := MemberID(batch, "web01", 1); again != id {
		t.Errorf("the id is %s, then %s", id, again)
	}
}

// A batch all of whose hosts were skipped counts no member. Its JSON has nothing then, as of any field that is empty.
func TestCountsOfABatchWithoutAny(t *testing.T) {
	text, err := json.Marshal(BatchStatus{State: BatchFailed, Skipped: map[string]int{ReasonPaused: 8}})
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("it is %s, %v", text, err)
	}
}
