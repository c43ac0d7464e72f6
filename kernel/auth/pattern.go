package auth

import (
	"regexp"
	"strings"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

const (
	// maxPattern is the longest pattern of a permission in bytes.
	maxPattern = 4096
	// maxPatterns is how many compiled patterns are kept.
	maxPatterns = 10_000
)

// pattern is a compiled permission. The zero value matches nothing.
type pattern struct {
	all bool
	re  *regexp.Regexp
}

func (p pattern) match(s string) bool { return p.all || p.re != nil && p.re.MatchString(s) }

// CheckPattern returns CodeInvalid unless text can be a permission. The syntax
// is RE2's: PCRE's look-around and back references, which would let a pattern
// take exponential time, are not in it.
func CheckPattern(text string) error {
	if len(text) > maxPattern {
		return kernel.Errorf(kernel.CodeInvalid, "permission", text[:32]+"...", "a pattern is at most %d bytes long", maxPattern)
	}
	if _, err := compile(expand(text, "", "", "")); err != nil {
		return kernel.Errorf(kernel.CodeInvalid, "permission", text, "it is not a regular expression (RE2 syntax): %v", err)
	}
	return nil
}

// compile gives a pattern its meaning as a permission (RabbitMQ's): it matches
// anywhere in a name, the empty one the empty name only.
func compile(text string) (pattern, error) {
	switch text {
	case "":
		text = "^$"
	case ".*", "^.*", ".*$":
		return pattern{all: true}, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return pattern{}, err
	}
	return pattern{re: re}, nil
}

// patterns keeps what has been compiled. Safe for concurrent use.
type patterns struct {
	mu   sync.Mutex
	kept map[string]pattern
}

// get compiles a pattern; one that is none (it was checked when it was set)
// matches nothing.
func (c *patterns) get(text string) pattern {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.kept[text]
	if !ok {
		p, _ = compile(text)
		if c.kept == nil || len(c.kept) >= maxPatterns {
			c.kept = make(map[string]pattern)
		}
		c.kept[text] = p
	}
	return p
}

// expand replaces the variables of a topic permission. Their values stand for
// themselves: a client id of ".*" matches no more than those two characters.
// Without a client id {client_id} stays as it is.
func expand(text, user, tenant, client string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	pairs := []string{"{username}", regexp.QuoteMeta(user), "{vhost}", regexp.QuoteMeta(tenant)}
	if client != "" {
		pairs = append(pairs, "{client_id}", regexp.QuoteMeta(client))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
