package kernel

import (
	"crypto/rand"
	"strings"
	"unicode/utf8"
)

// MaxName is the longest name of an exchange, queue or topic in bytes.
const MaxName = 255

// reservedPrefix begins the names that only the broker makes.
const reservedPrefix = "amq."

// CheckName returns CodeInvalidName unless name may name an object: at most
// MaxName bytes of UTF-8 without NUL.
func CheckName(object, name string) error {
	switch {
	case name == "":
		return Errorf(CodeInvalidName, object, name, "%s name is empty", object)
	case len(name) > MaxName:
		return Errorf(CodeInvalidName, object, name[:32]+"...", "%s name is longer than %d bytes", object, MaxName)
	case !utf8.ValidString(name):
		return Errorf(CodeInvalidName, object, name, "%s name is not UTF-8 text", object)
	case strings.IndexByte(name, 0) >= 0:
		return Errorf(CodeInvalidName, object, name, "%s name holds a NUL character", object)
	}
	return nil
}

// CheckNewName is CheckName for an object about to be made: reserved names are
// CodeAccessRefused.
func CheckNewName(object, name string) error {
	if err := CheckName(object, name); err != nil {
		return err
	}
	if Reserved(name) {
		return Errorf(CodeAccessRefused, object, name, "%s name '%s' contains reserved prefix '%s*'", object, name, reservedPrefix)
	}
	if IsShare(name) || strings.HasPrefix(name, sessionPrefix) {
		return Errorf(CodeInvalidName, object, name, "%s name '%s' is a share address", object, name)
	}
	return nil
}

// Reserved reports whether a name begins with the prefix that only the broker
// uses.
func Reserved(name string) bool { return strings.HasPrefix(name, reservedPrefix) }

// replyPrefix begins the names of reply queues.
const replyPrefix = reservedPrefix + "rabbitmq.reply-to."

// ReplyName makes the name of a reply queue: where a connection gets the answers to what
// it asks, in memory and exclusive to it. Nobody can guess the name: who has it was told.
func ReplyName() string { return replyPrefix + rand.Text() }

// IsReply reports whether a name is one of a reply queue. Its owner needs no right to have
// it, it is in no listing, and no policy applies to it.
func IsReply(name string) bool { return strings.HasPrefix(name, replyPrefix) }

// CheckFilter returns CodeInvalidName unless filter is a topic filter: "+" is a
// whole level, "#" a whole and the last one.
func CheckFilter(filter string) error {
	if err := CheckName("filter", filter); err != nil {
		return err
	}
	rest, last := filter, false
	for !last {
		var level string
		var more bool
		level, rest, more = strings.Cut(rest, "/")
		last = !more
		if level == "+" || (level == "#" && last) {
			continue
		}
		if HasWildcard(level) {
			return Errorf(CodeInvalidName, "filter", filter, "a wildcard is not alone in its level or # is not the last")
		}
	}
	return nil
}

// KeyOfName turns a name with levels into the routing key it has at the
// exchange ExchangeTopic.
func KeyOfName(name string) string { return strings.ReplaceAll(name, "/", ".") }

// NameOfKey is the reverse for keys published to ExchangeTopic.
func NameOfKey(key string) string {
	if strings.ContainsAny(key, ".*") {
		return keyToName.Replace(key)
	}
	return key
}

var keyToName = strings.NewReplacer(".", "/", "*", "+")
