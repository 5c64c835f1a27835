package mail_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify/mail"
)

// What is wrong with a receiver is told before anything is sent.
func ExampleSender_Check() {
	sender, err := mail.New(mail.Config{Server: "mail.example.org", From: "harp <harp@example.org>"})
	if err != nil {
		log.Fatal(err)
	}
	err = sender.Check(harp.Receiver{Mail: &harp.Mail{To: []string{"ana@example.org", "Ben <ben@example.org>"}}})
	fmt.Println(errors.Is(err, harp.ErrInvalid), err)
	// Output: true invalid to.mail.to: "Ben <ben@example.org>" must be an address as ana@example.org, at most 254 bytes of ASCII
}
