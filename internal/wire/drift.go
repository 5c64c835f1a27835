package wire

// DriftQuery asks for the marks of the hosts that a target selects; with a Name for those under that one.
type DriftQuery struct {
	Page
	Target string `msgpack:"target,omitempty"` // "": all hosts
	Name   string `msgpack:"name,omitempty"`
}

// Drifts answers DriftQuery.
type Drifts struct {
	Drifts Rows   `msgpack:"drifts,omitempty"` // of harp.DriftStatus
	Cursor string `msgpack:"cursor,omitempty"`
}

// ForgetDrift forgets all marks under a name.
type ForgetDrift struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
}
