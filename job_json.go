package harp

import (
	"encoding/json"
	"time"
)

// resultJSON and statusJSON are how a Result and a JobStatus are written as JSON.
type (
	resultFields Result
	resultJSON   struct {
		resultFields
		Error Failure `json:"error,omitzero"`
	}

	statusFields JobStatus
	statusJSON   struct {
		statusFields
		Error          Failure `json:"error,omitzero"`
		SilenceTimeout string  `json:"silence_timeout,omitempty"`
		MaxExecTime    string  `json:"max_exec_time,omitempty"`
	}
)

// MarshalJSON writes the fields that are not zero, Err as the [Failure] "error".
func (r Result) MarshalJSON() ([]byte, error) {
	return plainJSON(resultJSON{resultFields(r), FailureOf(r.Err)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json.
func (r *Result) UnmarshalJSON(text []byte) error {
	var read resultJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*r = Result(read.resultFields)
	r.Err = read.Error.Err()
	return nil
}

// MarshalJSON writes the fields that are not zero, in snake_case: times as RFC 3339, Err as
// the [Failure] "error", and limits as "1m30s", or "none".
func (s JobStatus) MarshalJSON() ([]byte, error) {
	return plainJSON(statusJSON{statusFields(s), FailureOf(s.Err), limitText(s.SilenceTimeout), limitText(s.MaxExecTime)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a
// [*FieldError] for a limit that is none.
func (s *JobStatus) UnmarshalJSON(text []byte) error {
	var read statusJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	timeout, err := limitIn("silence_timeout", read.SilenceTimeout)
	if err != nil {
		return err
	}
	maxExecTime, err := limitIn("max_exec_time", read.MaxExecTime)
	if err != nil {
		return err
	}
	*s = JobStatus(read.statusFields)
	s.Err, s.SilenceTimeout, s.MaxExecTime = read.Error.Err(), timeout, maxExecTime
	return nil
}

const noLimitText = "none"

func limitText(d time.Duration) string {
	switch d {
	case 0:
		return ""
	case NoLimit:
		return noLimitText
	default:
		return d.String()
	}
}

// limitIn is the limit that limitText wrote.
func limitIn(field, text string) (time.Duration, error) {
	switch text {
	case "":
		return 0, nil
	case noLimitText:
		return NoLimit, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, &FieldError{Field: field, Message: "must be a duration such as 5s, or none"}
	}
	return d, nil
}
