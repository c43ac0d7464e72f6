package wal

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// Pairs of the stable store are encoded one after the other as key length
// (uint16), key, value length (uint32), value.

const (
	maxKey   = 1<<16 - 1
	maxValue = 16 << 10
)

var errPairs = errors.New("damaged key-value pairs")

func appendPair(b []byte, key string, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// appendPairs encodes a whole store in the order of its keys.
func appendPairs(b []byte, kv map[string][]byte) []byte {
	for _, key := range slices.Sorted(maps.Keys(kv)) {
		b = appendPair(b, key, kv[key])
	}
	return b
}

// readPairs decodes into kv, copying.
func readPairs(b []byte, kv map[string][]byte) error {
	for len(b) > 0 {
		if len(b) < 2 {
			return errPairs
		}
		n := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		if len(b) < n+4 {
			return errPairs
		}
		key := string(b[:n])
		v := int64(binary.LittleEndian.Uint32(b[n:]))
		b = b[n+4:]
		if int64(len(b)) < v {
			return errPairs
		}
		kv[key] = append([]byte{}, b[:v]...)
		b = b[v:]
	}
	return nil
}
