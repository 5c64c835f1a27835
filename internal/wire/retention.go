package wire

import "github.com/harpcaller/harp"

// RetentionQuery asks for all retention rules, or how long a job or a batch is kept.
type RetentionQuery struct {
	Explain string `msgpack:"explain,omitempty"` // the id of the job or the batch; "": the rules are asked for
}

// RetentionRules answers RetentionQuery.
type RetentionRules struct {
	Rules Rows       `msgpack:"rules,omitempty"` // of harp.RetentionStatus
	Kept  *harp.Kept `msgpack:"kept,omitempty"`
}

// SetRetention makes a retention rule or replaces the one of its name.
type SetRetention struct {
	Request string             `msgpack:"id"` // the same when it is asked again
	Rule    harp.RetentionRule `msgpack:"rule"`
}

// DeleteRetention deletes a retention rule.
type DeleteRetention struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
}
