package harp

import (
	"encoding/json"
	"time"
)

// notificationJSON is how a Notification is written as JSON, and statusOfNotificationJSON a NotificationStatus.
type (
	notificationFields Notification
	notificationJSON   struct {
		notificationFields
		For    durationJSON `json:"for,omitzero"`
		Digest durationJSON `json:"digest,omitzero"`
	}

	statusOfNotificationJSON struct {
		notificationJSON
		ManagedBy string             `json:"managed_by,omitempty"`
		By        Principal          `json:"by,omitzero"`
		Changed   time.Time          `json:"changed,omitzero"`
		Pause     *NotificationPause `json:"pause,omitempty"`
		Behind    bool               `json:"behind,omitempty"`
		Pending   int                `json:"pending"`
		GivenUp   int                `json:"given_up"`
		Away      int                `json:"away,omitempty"`
		Gathered  int                `json:"gathered,omitempty"`
		Sent      uint64             `json:"sent"`
		Answer    string             `json:"answer,omitempty"`
		Tried     time.Time          `json:"tried,omitzero"`
		Error     Failure            `json:"error,omitzero"`
	}
)

// MarshalJSON writes the fields that are not zero, in snake_case: durations as "1m30s".
func (n Notification) MarshalJSON() ([]byte, error) { return plainJSON(newNotificationJSON(n)) }

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (n *Notification) UnmarshalJSON(text []byte) error {
	var read notificationJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*n = read.notification()
	return nil
}

func newNotificationJSON(n Notification) notificationJSON {
	return notificationJSON{notificationFields(n), durationJSON(n.For), durationJSON(n.Digest)}
}

func (j notificationJSON) notification() Notification {
	n := Notification(j.notificationFields)
	n.For, n.Digest = time.Duration(j.For), time.Duration(j.Digest)
	return n
}

// MarshalJSON writes the fields of the Notification and its own, Err as the [Failure] "error".
func (s NotificationStatus) MarshalJSON() ([]byte, error) {
	return plainJSON(statusOfNotificationJSON{
		newNotificationJSON(s.Notification), s.ManagedBy, s.By, s.Changed, s.Pause, s.Behind, s.Pending, s.GivenUp, s.Away, s.Gathered,
		s.Sent, s.Answer, s.Tried, FailureOf(s.Err),
	})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (s *NotificationStatus) UnmarshalJSON(text []byte) error {
	var read statusOfNotificationJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = NotificationStatus{
		read.notification(), read.ManagedBy, read.By, read.Changed, read.Pause, read.Behind, read.Pending, read.GivenUp, read.Away, read.Gathered,
		read.Sent, read.Answer, read.Tried, read.Error.Err(),
	}
	return nil
}
