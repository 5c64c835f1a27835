package dispatcher_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// What health is written as in JSON is read as the same health.
func TestHealthReadsBack(t *testing.T) {
	h := dispatcher.Health{Ready: true, Checks: map[string]error{
		"store": nil, "disk": harp.FailureOf(harp.ErrNoSpace).Err(), "registry": harp.FailureOf(errors.New("no such script")).Err(),
	}}
	text := must[[]byte](t)(json.Marshal(h))
	var read dispatcher.Health
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, h) || !errors.Is(read.Checks["disk"], harp.ErrNoSpace) {
		t.Errorf("%s is read as %+v", text, read)
	}
	if err := json.Unmarshal([]byte(`{"checks":5}`), &read); err == nil {
		t.Error("what is no health is read as one")
	}
}
