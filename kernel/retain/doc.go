// Package retain keeps what is retained: the last message of a topic that was
// published to be shown to later subscribers. Message is how one is written
// down, in the keyed state of a placement group (docs/formats/retained.md);
// Index finds them by filter. Both are pure: no I/O, no clock.
package retain
