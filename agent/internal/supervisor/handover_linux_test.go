package supervisor

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// TestHandoverKeepsEmptyGroups checks that a command which may have no supplementary
// groups is told so to its supervisor: none given would be those of the user.
func TestHandoverKeepsEmptyGroups(t *testing.T) {
	for name, groups := range map[string][]string{"not said": nil, "none": {}, "one": {"4"}} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Key: Key{"01JOB", 2}, Command: proc.Spec{Argv: []string{"/bin/id"}, Groups: groups}}
			text, err := json.Marshal(newHandover("/run", spec, false))
			if err != nil {
				t.Fatal(err)
			}
			var h handover
			if err := json.Unmarshal(text, &h); err != nil {
				t.Fatal(err)
			}
			if got := h.spec().Command.Groups; !reflect.DeepEqual(got, groups) {
				t.Errorf("the groups arrive as %#v, want %#v", got, groups)
			}
		})
	}
}
