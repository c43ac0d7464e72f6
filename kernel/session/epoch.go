package session

import (
	"fmt"
	"strings"

	"github.com/trivium-mq/trivium/metasvc/codec"
)

// epochPrefix begins the keys of epochs. They are apart from the records of sessions, so
// that brokers which know of none still read those.
const epochPrefix = "e/"

// EpochPrefix begins the keys of the epochs of all sessions.
func EpochPrefix() []byte { return []byte(epochPrefix) }

// EpochKey is the key of the epoch of a session's last attachment.
func EpochKey(tenant, client string) []byte {
	return []byte(epochPrefix + tenant + "\x00" + client)
}

// ParseEpochKey takes apart what EpochKey made.
func ParseEpochKey(key []byte) (tenant, client string, err error) {
	rest, ok := strings.CutPrefix(string(key), epochPrefix)
	tenant, client, cut := strings.Cut(rest, "\x00")
	if !ok || !cut {
		return "", "", fmt.Errorf("epoch key %q: %w", key, codec.ErrCorrupt)
	}
	return tenant, client, nil
}

// AppendEpoch appends the encoding of an epoch.
func AppendEpoch(b []byte, epoch uint64) []byte { return codec.AppendUint(append(b, Version), epoch) }

// ReadEpoch decodes what AppendEpoch wrote.
func ReadEpoch(b []byte) (epoch uint64, err error) {
	rd, _, err := reader(b, Version)
	if err != nil {
		return 0, err
	}
	epoch = rd.Uint()
	if err := rd.Done(); err != nil {
		return 0, fmt.Errorf("epoch of a session: %w", err)
	}
	return epoch, nil
}
