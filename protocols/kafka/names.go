package kafka

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// maxName is Kafka's limit on a topic name in bytes; longer ones are hidden.
const maxName = 249

const hexDigits = "0123456789ABCDEF"

// kafkaName returns the name under which Kafka clients see a topic: bytes
// outside Kafka's alphabet are written _xHH, and the underscore of a literal
// _xHH as _x5F, so that no two topics share a name. Kafka allows neither "."
// nor ".." as a whole name. ok is false when the result is too long.
func kafkaName(name string) (k string, ok bool) {
	if name == "" {
		return "", false
	}
	if plain(name) {
		return name, len(name) <= maxName
	}
	b := make([]byte, 0, len(name)+16)
	for i := 0; i < len(name); i++ {
		ch := name[i]
		if legal(ch) && !isEscape(name[i:]) && (i > 0 || !dots(name)) {
			b = append(b, ch)
			continue
		}
		b = append(b, '_', 'x', hexDigits[ch>>4], hexDigits[ch&15])
	}
	return string(b), len(b) <= maxName
}

// topicName returns the topic a Kafka name stands for. Any name Kafka allows
// is accepted; canonical is false when kafkaName gives that topic another name,
// so that it can be found but not made under this one. ok is false when Kafka
// does not allow the name.
func topicName(k string) (name string, canonical, ok bool) {
	if k == "" || len(k) > maxName || dots(k) {
		return "", false, false
	}
	for i := 0; i < len(k); i++ {
		if !legal(k[i]) {
			return "", false, false
		}
	}
	if !strings.Contains(k, "_x") {
		return k, true, true
	}
	b := make([]byte, 0, len(k))
	for i := 0; i < len(k); i++ {
		if isEscape(k[i:]) {
			b = append(b, unhex(k[i+2])<<4|unhex(k[i+3]))
			i += 3
			continue
		}
		b = append(b, k[i])
	}
	name = string(b)
	back, _ := kafkaName(name)
	return name, back == k, true
}

// visible tells whether Kafka clients see a topic, and as what.
func visible(t *kernel.Topic) (k string, ok bool) {
	if t.Kind != kernel.Plain || t.Volatile || t.Internal {
		return "", false
	}
	return kafkaName(t.Name)
}

func plain(name string) bool {
	for i := 0; i < len(name); i++ {
		if !legal(name[i]) {
			return false
		}
	}
	return !strings.Contains(name, "_x") && !dots(name)
}

func dots(name string) bool { return name == "." || name == ".." }

func legal(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// isEscape tells whether s begins with _xHH, digits in upper case.
func isEscape(s string) bool {
	return len(s) >= 4 && s[0] == '_' && s[1] == 'x' && upperHex(s[2]) && upperHex(s[3])
}

func upperHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'F' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}
