// Package policy works out which policy applies to an object and what it asks
// for. It is pure.
package policy

import (
	"cmp"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// Names of the settings that a definition may have.
const (
	Expires            = "expires"
	MessageTTL         = "message-ttl"
	MaxLength          = "max-length"
	MaxLengthBytes     = "max-length-bytes"
	Overflow           = "overflow"
	DeadLetterExchange = "dead-letter-exchange"
	DeadLetterKey      = "dead-letter-routing-key"
	DeadLetterStrategy = "dead-letter-strategy"
	DeliveryLimit      = "delivery-limit"
	AlternateExchange  = "alternate-exchange"
	RetentionAge       = "retention-age"        // milliseconds
	RetentionBytes     = "retention-bytes"      // of settled records, by partition
	DedupWindow        = "deduplication-window" // milliseconds
)

// setting is what a value must be, and whether an operator policy may have it.
type setting struct {
	check    func(v any) string // why it may not, "" = it may
	operator bool
}

var settings = map[string]setting{
	Expires:            {positive, true},
	MessageTTL:         {natural, true},
	MaxLength:          {natural, true},
	MaxLengthBytes:     {natural, true},
	Overflow:           {overflow, true},
	DeliveryLimit:      {integer, true},
	DeadLetterExchange: {text, false},
	DeadLetterKey:      {text, false},
	DeadLetterStrategy: {strategy, false},
	AlternateExchange:  {text, false},
	RetentionAge:       {natural, false},
	RetentionBytes:     {positive, false},
	DedupWindow:        {natural, false},
}

// accepted are settings of RabbitMQ that steer how its replicas are placed or
// what its queues keep in memory. There is nothing here that they could change,
// so they are kept and listed. The value says whether operator policies have it.
var accepted = map[string]bool{
	"ha-mode": true, "ha-params": true, "ha-sync-mode": true, "ha-sync-batch-size": false,
	"ha-promote-on-shutdown": false, "ha-promote-on-failure": false,
	"queue-master-locator": false, "queue-leader-locator": false, "queue-mode": false, "queue-version": true,
	"max-in-memory-length": true, "max-in-memory-bytes": true, "target-group-size": true, "initial-cluster-size": false,
}

// maxPattern is the longest pattern in bytes.
const maxPattern = 4096

// Check returns CodeInvalid, or CodeInvalidName, unless p can be used.
func Check(p *kernel.Policy) error {
	refuse := func(format string, args ...any) error {
		return kernel.Errorf(kernel.CodeInvalid, "policy", p.Name, format, args...)
	}
	if err := kernel.CheckName("policy", p.Name); err != nil {
		return err
	}
	if len(p.Pattern) > maxPattern {
		return refuse("the pattern is longer than %d bytes", maxPattern)
	}
	if _, err := compile(p.Pattern); err != nil {
		return refuse("the pattern is no regular expression: %v", err)
	}
	switch p.ApplyTo {
	case kernel.PolicyAll, kernel.PolicyQueues, kernel.PolicyClassicQueues, kernel.PolicyQuorumQueues, kernel.PolicyStreams:
	case kernel.PolicyExchanges:
		if p.Operator {
			return refuse("an operator policy does not apply to exchanges")
		}
	default:
		return refuse("apply-to '%s' is none of all, queues, classic_queues, quorum_queues, streams, exchanges", p.ApplyTo)
	}
	if len(p.Definition) == 0 {
		return refuse("the definition is empty")
	}
	for _, a := range p.Definition {
		s, known := settings[a.Name]
		byOperator, idle := accepted[a.Name]
		switch {
		case idle && (byOperator || !p.Operator):
		case !known:
			return refuse("'%s' is not a recognised policy setting", a.Name)
		case p.Operator && !s.operator:
			return refuse("'%s' is not a recognised operator policy setting", a.Name)
		default:
			if why := s.check(a.Value); why != "" {
				return refuse("%s %s", a.Name, why)
			}
		}
	}
	return nil
}

// Sort puts a definition into its canonical order.
func Sort(definition []kernel.Argument) {
	slices.SortFunc(definition, func(a, b kernel.Argument) int { return cmp.Compare(a.Name, b.Name) })
}

func integer(v any) string {
	if _, ok := v.(int64); !ok {
		return "must be a whole number"
	}
	return ""
}

func natural(v any) string {
	if n, ok := v.(int64); !ok || n < 0 {
		return "must be a whole number that is not negative"
	}
	return ""
}

func positive(v any) string {
	if n, ok := v.(int64); !ok || n < 1 {
		return "must be a whole number above 0"
	}
	return ""
}

func text(v any) string {
	if _, ok := v.(string); !ok {
		return "must be a text"
	}
	return ""
}

func overflow(v any) string {
	if s, ok := v.(string); ok {
		if _, ok := OverflowOf(s); ok {
			return ""
		}
	}
	return "must be drop-head, reject-publish or reject-publish-dlx"
}

func strategy(v any) string {
	if s, _ := v.(string); s == "at-most-once" || s == "at-least-once" {
		return ""
	}
	return "must be at-most-once or at-least-once"
}

// OverflowOf returns the overflow mode of that name.
func OverflowOf(name string) (kernel.Overflow, bool) {
	switch name {
	case "drop-head":
		return kernel.DropHead, true
	case "reject-publish":
		return kernel.RejectPublish, true
	case "reject-publish-dlx":
		return kernel.RejectPublishDeadLetter, true
	}
	return 0, false
}
