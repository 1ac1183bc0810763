// Package spacesaving finds the keys that come most often in a stream of any length, in memory for a fixed number of them.
//
// # Algorithm
//
// Space-Saving: A. Metwally, D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT
// 2005, LNCS 3363. The sketch watches m keys, each with a count and an error. A key that is watched counts one up. One that is not
// takes the place of the key with the smallest count, min: its count is min + 1, and its error min, for so often it may have come
// unseen.
//
// # What holds
//
// Of a stream of N keys in which key x came f(x) times, as the paper proves (each follows from the step above by induction over N):
//
//	(1)  the counts add up to N, so min ≤ N/m
//	(2)  every watched x has  count − error ≤ f(x) ≤ count  and  error ≤ min
//	(3)  every x with f(x) > min is watched
//
// So count − error never says too much (Estimate.AtLeast), and says too little by N/m at most: a key that came more than T + N/m times
// has AtLeast > T, whoever else came in between. Nobody who sweeps through keys can push a truly frequent one out; they only raise N.
//
// # Bounds
//
// m keys are kept and nothing else: no memory is taken after New but for what the map of keys reorganizes. Keys are kept as they are given, so
// the caller bounds their length. Add costs a look into the map and a step or two in a heap; of a new key also a change of the map.
package spacesaving
