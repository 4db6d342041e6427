//go:build !race

package test

const raceDetector = false
