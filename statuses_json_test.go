package harp

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOtherStatusesReadBack is TestStatusesReadBack for what is made of plain fields, each of
// which is given any value: a field that is added is tested, too.
func TestOtherStatusesReadBack(t *testing.T) {
	t.Run("HostStatus", readsBackAny[HostStatus])
	t.Run("HostPing", readsBackAny[HostPing])
	t.Run("ProcedureDoc", readsBackAny[ProcedureDoc])
	t.Run("QueueStatus", readsBackAny[QueueStatus])
	t.Run("Event", readsBackAny[Event])
	t.Run("EventPage", readsBackAny[EventPage])
	t.Run("BatchStatus", readsBackAny[BatchStatus])
	t.Run("HostResult", readsBackAny[HostResult])
	t.Run("HostRecord", readsBackAny[HostRecord])
	t.Run("Record", readsBackAny[Record])
	t.Run("Failure", readsBackAny[Failure])
	t.Run("Schedule", readsBackAny[Schedule])
	t.Run("ScheduleStatus", readsBackAny[ScheduleStatus])
	t.Run("LedgerEntry", readsBackAny[LedgerEntry])
	t.Run("Upcoming", readsBackAny[Upcoming])
	t.Run("Window", readsBackAny[Window])
	t.Run("WindowStatus", readsBackAny[WindowStatus])
	t.Run("Notification", readsBackAny[Notification])
	t.Run("NotificationStatus", readsBackAny[NotificationStatus])
	t.Run("MessageStatus", readsBackAny[MessageStatus])
	t.Run("Verdict", readsBackAny[Verdict])
	t.Run("RetentionRule", readsBackAny[RetentionRule])
	t.Run("RetentionStatus", readsBackAny[RetentionStatus])
	t.Run("Kept", readsBackAny[Kept])
	t.Run("DriftStatus", readsBackAny[DriftStatus])
	t.Run("Group", readsBackAny[Group])
	t.Run("Applied", readsBackAny[Applied])
	t.Run("ServerInfo", readsBackAny[ServerInfo])
	t.Run("Obstacle", readsBackAny[Obstacle])
	t.Run("Span", readsBackAny[Span])
	t.Run("Folded", readsBackAny[Folded])
}

func readsBackAny[T any](t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v T
		setAny(t, reflect.ValueOf(&v).Elem(), reflect.TypeFor[T]().Name())
		readsBack(t, v)
	})
}

var (
	valueType = reflect.TypeFor[Value]()
	rawType   = reflect.TypeFor[json.RawMessage]()
	timeType  = reflect.TypeFor[time.Time]()
	errorType = reflect.TypeFor[error]()
	someValue = rapid.SampledFrom([]Value{nil, {0xa1, 'x'}, {0x80}, {0x01}, {0xc3}})
	someRaw   = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"a":1}`)})
)

// setAny gives v, of a noun of this package, any value that it may have. A list or a map that is
// empty is nil, and text is valid UTF-8, as everywhere in statuses.
func setAny(t *rapid.T, v reflect.Value, name string) {
	switch v.Type() {
	case valueType:
		v.Set(reflect.ValueOf(someValue.Draw(t, name)))
		return
	case rawType:
		v.Set(reflect.ValueOf(someRaw.Draw(t, name)))
		return
	case timeType:
		at := time.Time{}
		if seconds := rapid.Int64Range(0, 1<<33).Draw(t, name); seconds > 0 {
			at = time.Unix(seconds, rapid.Int64Range(0, 1e9-1).Draw(t, name+" ns")).UTC()
		}
		v.Set(reflect.ValueOf(at))
		return
	case errorType:
		if err := anyFailure(t); err != nil {
			v.Set(reflect.ValueOf(err))
		}
		return
	}
	switch v.Kind() {
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, name)))
	case reflect.String:
		v.SetString(rapid.StringN(0, 8, 30).Draw(t, name))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, name))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, name))
	case reflect.Struct:
		for i := range v.NumField() {
			setAny(t, v.Field(i), name+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, name+" is known") {
			v.Set(reflect.New(v.Type().Elem()))
			setAny(t, v.Elem(), name)
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 2).Draw(t, name+" length"); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			setAny(t, v.Index(i), fmt.Sprintf("%s[%d]", name, i))
		}
	case reflect.Map:
		if !rapid.Bool().Draw(t, name+" has entries") {
			return
		}
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		setAny(t, key, name+" key")
		setAny(t, value, name+" value")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		t.Fatalf("%s is a %s, of which this test knows nothing", name, v.Type())
	}
}
